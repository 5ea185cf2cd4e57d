"""The libraries in a binary, from cargo's metadata and lock files."""
import json
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
# The package of each binary, and the manifest of its workspace.
BINARIES = {'stentor': 'Cargo.toml', 'stentor-lab': 'lab/program/Cargo.toml'}
# Libraries of other ecosystems whose files the binary `stentor` contains, each with the folder of its license.
EMBEDDED = [{
    'name': 'uplot', 'version': '1.6.32', 'license': 'MIT', 'purl': 'pkg:npm/uplot@1.6.32',
    'repository': 'https://github.com/leeoniya/uPlot', 'folder': 'crates/control/src/admin/page/uplot',
}]


def run(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT).stdout


def this_target():
    """The Rust target of this machine."""
    return next(line.split()[1] for line in run('rustc', '-vV').splitlines() if line.startswith('host:'))


def metadata(manifest, target):
    command = ['cargo', 'metadata', '--format-version', '1', '--locked', '--manifest-path', manifest]
    return json.loads(run(*command, '--filter-platform', target))


def linked(binary, target):
    """The libraries of a binary, by name and version: no crates of ours, no dependencies of builds and tests."""
    graph = metadata(BINARIES[binary], target)
    packages = {package['id']: package for package in graph['packages']}
    nodes = {node['id']: node for node in graph['resolve']['nodes']}
    left = [member for member in graph['workspace_members'] if packages[member]['name'] == binary]
    seen = set(left)
    while left:
        for dependency in nodes[left.pop()]['deps']:
            is_linked = any(kind['kind'] is None for kind in dependency['dep_kinds'])
            if is_linked and dependency['pkg'] not in seen:
                seen.add(dependency['pkg'])
                left.append(dependency['pkg'])
    libraries = (packages[found] for found in seen if packages[found]['source'])
    return {(package['name'], package['version']): package for package in libraries}
