"""The parts of `make test` and `make test-all`: what runs, on how many CPUs, after what, and with which tools.

| key | meaning |
|---|---|
| suites | `test`, `all` or both: the commands that run the part |
| command | the program with its arguments; `{target}` is cargo's target folder |
| rust | test programs, `CRATE/PROGRAM`; `unit` is the unit tests of a crate, `CRATE/*` all its programs, `*` those of no other part |
| files | patterns of Node test files |
| cpus | CPUs of each task, and threads of a Rust test program; 1 unless given |
| environment | variables of the part's commands, with `{target}` as well |
| after | names of tasks that have to pass first |
| tools | programs or files that have to be there; `a|b` is one of them, and a text with spaces a command that has to succeed |
"""

# A task that takes longer hangs.
TIMEOUT_S = 900

ALL_CPUS = 64
# The attacks are no part of the server. They are built by their own tests only.
APART = ['--exclude', 'stentor-attack']
# The lab is a workspace of its own.
LAB = ['--manifest-path', 'lab/program/Cargo.toml', '--locked']
PROGRAMS = ['--bins', '--tests', '--message-format=json-render-diagnostics']
BUILD = ['cargo', 'build', '--quiet', '--workspace', *PROGRAMS]
CLIPPY = ['cargo', 'clippy', '--quiet', '--jobs', '1']
DENY_WARNINGS = ['--', '-D', 'warnings']
ATTACK = ['{target}/debug/stentor-attack', 'fuzz', '--binary', '{target}/debug/stentor', '--seconds', '30', '--seed', '1']
PACKAGE = {'PACKAGE_PROFILE': 'demo', 'PACKAGE_OUTPUT': '{target}/package-test'}
OTHER_PACKAGE = {**PACKAGE, 'PACKAGE_OUTPUT': '{target}/package-test-aarch64'}

PARTS = [
    # make test: format, lints, deterministic tests, and each real thing once.
    {'name': 'setup', 'suites': ['test'], 'cpus': 0, 'command': ['scripts/setup-tests', 'test']},
    {'name': 'format', 'suites': ['test'], 'cpus': 0, 'command': ['cargo', 'fmt', '--all', '--check']},
    {'name': 'format-lab', 'suites': ['test'], 'cpus': 0, 'command': ['cargo', 'fmt', '--manifest-path', 'lab/program/Cargo.toml', '--check']},
    {'name': 'format-fuzz', 'suites': ['test'], 'cpus': 0, 'command': ['cargo', 'fmt', '--manifest-path', 'fuzz/Cargo.toml', '--check']},
    {'name': 'build', 'suites': ['test'], 'cpus': ALL_CPUS, 'command': [*BUILD, *APART, '--example', 'conformance']},
    {'name': 'clippy', 'suites': ['test'], 'after': ['build'], 'command': [*CLIPPY, '--workspace', *APART, '--all-targets', *DENY_WARNINGS]},
    {'name': 'clippy-demo', 'suites': ['test'], 'after': ['clippy'],
     'command': [*CLIPPY, '--package', 'stentor', '--no-default-features', *DENY_WARNINGS]},
    {'name': 'rust', 'suites': ['test'], 'after': ['build'], 'rust': ['*']},
    # These mostly wait: 57 s of CPU in 183 s, one after the other.
    {'name': 'clients', 'suites': ['test'], 'cpus': 0.5, 'after': ['build', 'setup'], 'tools': ['chromium|chromium-browser|google-chrome'],
     'files': ['tests/clients/*.test.mjs']},

    # make test-all: what takes minutes, needs other languages, several servers or a browser of each kind, or has time as its subject.
    {'name': 'setup-all', 'suites': ['all'], 'cpus': 0, 'command': ['scripts/setup-tests', 'all']},
    {'name': 'build-all', 'suites': ['all'], 'cpus': ALL_CPUS, 'command': [*BUILD, '--examples']},
    {'name': 'build-lab', 'suites': ['all'], 'cpus': ALL_CPUS, 'after': ['build-all'], 'command': ['cargo', 'build', '--quiet', *LAB, *PROGRAMS]},
    {'name': 'engines', 'suites': ['all'], 'after': ['build-all', 'setup-all'], 'tools': ['redis-server', 'nats-server'],
     'rust': ['cluster/contract', 'cluster/interest_memory']},
    {'name': 'slow', 'suites': ['all'], 'after': ['build-all', 'setup-all'], 'rust': ['stentor/slow']},
    {'name': 'attack', 'suites': ['all'], 'after': ['build-all', 'setup-all'], 'rust': ['attack/*']},
    # An optimized server, for counts and for the sizing test. It is built beside the tests, on one CPU.
    {'name': 'optimized-server', 'suites': ['all'], 'after': ['build-all'], 'command': [
        'cargo', 'build', '--quiet', '--jobs', '1', '--profile', 'counts', '--package', 'stentor']},
    {'name': 'counts', 'suites': ['all'], 'after': ['optimized-server'], 'tools': ['valgrind', 'strace', 'redis-server'],
     'command': ['scripts/count-instructions', '--check', 'scripts/counts.toml', '{target}/counts/stentor']},
    # Alone, because it compares CPU times.
    {'name': 'sizing', 'suites': ['all'], 'cpus': ALL_CPUS, 'after': ['build-lab', 'optimized-server'], 'tools': ['openssl', 'chrt'],
     'rust': ['lab/sizing']},
    {'name': 'lab', 'suites': ['all'], 'after': ['build-lab', 'setup-all'], 'tools': ['valgrind', 'strace'], 'rust': ['lab/*']},
    {'name': 'clippy-attack', 'suites': ['all'], 'after': ['build-all'],
     'command': [*CLIPPY, '--package', 'stentor-attack', '--all-targets', *DENY_WARNINGS]},
    {'name': 'clippy-lab', 'suites': ['all'], 'after': ['build-lab'], 'command': [*CLIPPY, *LAB, '--all-targets', *DENY_WARNINGS]},
    {'name': 'documentation', 'suites': ['all'], 'after': ['build-all'], 'environment': {'RUSTDOCFLAGS': '-D warnings'},
     'command': ['cargo', 'doc', '--quiet', '--jobs', '1', '--workspace', '--no-deps', '--document-private-items']},
    {'name': 'documentation-lab', 'suites': ['all'], 'after': ['build-lab'], 'environment': {'RUSTDOCFLAGS': '-D warnings'},
     'command': ['cargo', 'doc', '--quiet', '--jobs', '1', *LAB, '--no-deps', '--document-private-items']},
    {'name': 'examples-of-documentation', 'suites': ['all'], 'after': ['build-all'],
     'command': ['cargo', 'test', '--quiet', '--jobs', '1', '--workspace', '--doc']},
    # The build of `make run`: what it says of settings that it lacks the engine for.
    {'name': 'without-engines', 'suites': ['all'], 'after': ['build-all'], 'command': [
        'cargo', 'test', '--quiet', '--jobs', '1', '--package', 'stentor', '--no-default-features', '--bin', 'stentor', '--', 'a_build_without_engines']},
    {'name': 'dependencies', 'suites': ['all'], 'command': ['scripts/check-dependencies']},
    {'name': 'docs', 'suites': ['all'], 'after': ['setup-all'], 'command': ['scripts/docs', '{target}/docs-test']},
    {'name': 'json-patch', 'suites': ['all'], 'after': ['build-all', 'setup-all'], 'command': ['tests/delta/run']},
    {'name': 'sanitizer', 'suites': ['all'], 'after': ['build-all'], 'tools': ['cargo +nightly --version'], 'command': ['scripts/sanitize']},
    {'name': 'fuzz-targets', 'suites': ['all'], 'after': ['build-all'],
     'command': ['cargo', 'build', '--quiet', '--jobs', '1', '--manifest-path', 'fuzz/Cargo.toml', '--target-dir', '{target}/fuzz']},
    {'name': 'live-fuzz', 'suites': ['all'], 'cpus': 2, 'after': ['build-all'], 'command': ATTACK},
    # Binaries that are quicker to build than those of a release.
    {'name': 'package-build', 'suites': ['all'], 'after': ['build-all', 'setup-all'], 'environment': PACKAGE,
     'tools': ['musl-gcc', 'buildah', 'rustup target list --installed | grep musl'], 'command': ['scripts/package']},
    {'name': 'package-build-aarch64', 'suites': ['all'], 'after': ['package-build'], 'environment': OTHER_PACKAGE,
     'command': ['scripts/package', 'aarch64-unknown-linux-musl']},
    {'name': 'packages', 'suites': ['all'], 'after': ['package-build'], 'environment': PACKAGE, 'files': ['tests/package/package.test.mjs']},
    {'name': 'server-packages', 'suites': ['all'], 'after': ['package-build-aarch64'],
     'environment': {**PACKAGE, 'OTHER_PACKAGE_OUTPUT': OTHER_PACKAGE['PACKAGE_OUTPUT']}, 'tools': ['qemu-aarch64-static', 'dpkg-deb', 'ssh-keygen'],
     'files': ['tests/package/server-packages.test.mjs']},
    {'name': 'first-hour', 'suites': ['all'], 'after': ['package-build'], 'environment': PACKAGE, 'tools': ['unshare', 'ip', 'openssl', 'curl'],
     'command': ['tests/package/first-hour']},
    {'name': 'kubernetes', 'suites': ['all'], 'after': ['setup-all'], 'tools': ['redis-server'], 'files': ['tests/package/kubernetes.test.mjs']},
    {'name': 'clients-all', 'suites': ['all'], 'after': ['build-all', 'build-lab', 'setup-all'],
     'tools': ['redis-server', 'redis-sentinel', 'nats-server', 'nginx', 'apache2', 'haproxy', 'caddy', 'lighttpd', 'varnishd', 'prometheus', 'php', 'ls /usr/sbin/php-fpm*', 'firefox|firefox-esr', 'mvn', 'javac',
               'go', 'python3', 'openssl'],
     'files': ['tests/clients/all/*.test.mjs']},
]
