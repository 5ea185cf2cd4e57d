"""Applies the cases on standard input, one a line, with PyPI jsonpatch: each must give its new version."""

import json
import sys

import jsonpatch


def canonical(value):
    """Tells True from 1, which Python calls equal."""
    if isinstance(value, list):
        return ["array", [canonical(element) for element in value]]
    if isinstance(value, dict):
        return ["object", {name: canonical(member) for name, member in value.items()}]
    return [type(value).__name__, value]


cases = operations = 0
for line in sys.stdin:
    # All numbers are doubles, as in JavaScript.
    case = json.loads(line, parse_int=float)
    try:
        made = jsonpatch.apply_patch(case["old"], case["patch"])
        if canonical(made) != canonical(case["new"]):
            raise ValueError("another value")
    except Exception as error:
        sys.exit(f"{case['name']}: {error}\n{line}")
    cases += 1
    operations += len(case["patch"])
print(f"jsonpatch: {cases} cases, {operations} operations")
sys.exit(0 if cases else 1)
