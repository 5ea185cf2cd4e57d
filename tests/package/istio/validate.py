"""Checks objects of YAML files by the schemas of custom resource definitions: validate.py DEFINITIONS FILE… A field that the schema lacks is a mistake."""
import sys

import jsonschema
import yaml


def strict(schema):
    """The schema, without fields that it doesn't name. Parts of oneOf and anyOf name only some of the fields, so they stay as they are."""
    if not isinstance(schema, dict):
        return schema
    schema = {name: strict(inner) if name in ('items', 'additionalProperties') else inner for name, inner in schema.items()}
    if 'properties' in schema:
        schema['properties'] = {name: strict(inner) for name, inner in schema['properties'].items()}
        if not schema.get('x-kubernetes-preserve-unknown-fields'):
            schema.setdefault('additionalProperties', False)
    return schema


definitions, *files = sys.argv[1:]
schemas = {}
with open(definitions) as file:
    for definition in filter(None, yaml.load_all(file, yaml.CSafeLoader)):
        spec = definition['spec']
        for version in spec['versions']:
            schemas[f"{spec['group']}/{version['name']}", spec['names']['kind']] = version['schema']['openAPIV3Schema']

failed = False
for name in files:
    with open(name) as file:
        for thing in filter(None, yaml.safe_load_all(file)):
            schema = strict(schemas[thing['apiVersion'], thing['kind']])
            schema['properties'].update({field: {} for field in ('apiVersion', 'kind', 'metadata')})
            for error in jsonschema.Draft202012Validator(schema).iter_errors(thing):
                failed = True
                print(f"{thing['kind']} {'.'.join(map(str, error.absolute_path))}: {error.message}")
sys.exit(failed)
