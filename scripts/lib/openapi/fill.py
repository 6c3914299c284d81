#!/usr/bin/env python3
"""fill.py DOCUMENT DOCS URL SCHEMA…: the server's OpenAPI document with the resources of these schemas written out.

`/v1/limit/{name}/take` becomes a path for each limit, with that limit's placeholders in `key`. Uploads and runs are made
first, so that requests find some. DOCS is what `quaymaster docs` says of the schemas: it names the placeholders whose
values may contain `:`. The document goes to standard output.
"""

import copy
import json
import re
import sys
import tomllib
import urllib.request

# The server fills these placeholders in, from the store's clock.
BUCKETS = {"minute", "hour", "day", "week", "month"}
COMPONENTS = "#/components/schemas/"


def wide(docs):
    """The placeholders whose values may contain `:`, as (kind.name, placeholder)."""
    found = set()
    for resource, rest in re.findall(r"^- `([\w.-]+)`: (.*)$", docs, re.MULTILINE):
        found |= {(resource, name) for name in re.findall(r"`(\w+)` may contain `:`", rest)}
    return found


def resources(files, colons):
    """The placeholders of each resource by kind and name, and whether they may contain `:`.

    {"limit": {"psp": {"psp_id": True}}}
    """
    found = {}
    for file in files:
        with open(file, "rb") as opened:
            schema = tomllib.load(opened)
        for kind, named in schema.items():
            if kind == "schema":
                continue
            for name, resource in named.items():
                parts = [(kind, name)]
                if kind == "guard":
                    parts = [("limit", limit) for limit in resource.get("limits", [])]
                    parts += [(part, resource[part]) for part in ("idempotency", "lock") if part in resource]
                values = found.setdefault(kind, {}).setdefault(name, {})
                for of, called in parts:
                    for one in re.findall(r"\{(\w+)\}", schema[of][called].get("key", "")):
                        if one not in BUCKETS:
                            values[one] = values.get(one, True) and (f"{of}.{called}", one) in colons
                            if kind == "guard" and of != "limit":
                                needed = found.setdefault("leave", {}).setdefault(name, [])
                                needed += [one] if one not in needed else []
    return found


def key_of(placeholders, value_of, needed=None):
    """What `key` holds for a resource with these placeholders, of which some may be left out."""
    values = {}
    for name, colon in placeholders.items():
        value = copy.deepcopy(value_of)
        if not colon:
            text = value["oneOf"][0] if "oneOf" in value else value
            text["pattern"] = text["pattern"].replace("[^", "[^:", 1)
        values[name] = value
    return {"type": "object", "properties": values, "required": needed or list(values), "additionalProperties": False}


def fill_part(schema, named, value_of):
    """Names and keys of what a part of a request refers to. All of one kind have the same placeholders here."""
    placeholders = next(iter(named.values()))
    schema["properties"]["name"] = {"type": "string", "enum": sorted(named)}
    if "key" in schema["properties"]:
        schema["properties"]["key"] = key_of(placeholders, value_of)
        if placeholders and "key" not in schema["required"]:
            schema["required"].append("key")


def fill_operation(operation, components, placeholders, needed, known):
    """One operation of one resource."""
    operation = copy.deepcopy(operation)
    operation["parameters"] = [one for one in operation["parameters"] if one["name"] != "name"]
    for parameter in operation["parameters"]:
        if parameter["name"] == "key":
            parameter["schema"] = key_of(placeholders, components["KeyText"])
            parameter["required"] = bool(placeholders)
        if parameter["name"] in known:
            parameter["schema"] = {"anyOf": [{"enum": known[parameter["name"]]}, parameter["schema"]]}
    content = operation.get("requestBody", {}).get("content", {}).get("application/json")
    if content:
        schema = copy.deepcopy(components[content["schema"]["$ref"].removeprefix(COMPONENTS)])
        properties = schema.get("properties", {})
        if "key" in properties:
            properties["key"] = key_of(placeholders, components["KeyValue"], needed)
            schema["required"] = [one for one in schema.get("required", []) if one != "key"]
            if placeholders:
                schema["required"].append("key")
        for name in known.keys() & properties.keys():
            properties[name] = {"anyOf": [{"enum": known[name]}, properties[name]]}
        content["schema"] = schema
    return operation


def call(url, path, body=None, method="POST", content_type="application/json"):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, {"content-type": content_type}, method=method)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def begin(url, found):
    """Uploads and runs to be found: their ids by the name of the field that takes them."""
    uploads = []
    for name in found["upload"]:
        for complete in (False, True):
            upload = call(url, f"/v1/upload/{name}/create", {"name": "report.pdf"})["upload_id"]
            if complete:
                chunk = f"/v1/upload/{name}/{upload}/chunk/0?last=true"
                call(url, chunk, b"content", "PUT", "application/octet-stream")
            uploads.append(upload)
    runs = [call(url, f"/v1/run/{name}/start", {})["run_id"] for name in found["run"] for _ in range(2)]
    for name in found["run"]:
        for run in runs:
            call(url, f"/v1/run/{name}/task_start", {"run_id": run, "task_id": "task"})
    return {"upload_id": uploads, "run_id": runs, "task_id": ["task"]}


def main():
    with open(sys.argv[1], encoding="utf-8") as opened:
        document = json.load(opened)
    with open(sys.argv[2], encoding="utf-8") as opened:
        colons = wide(opened.read())
    url, found = sys.argv[3], resources(sys.argv[4:], colons)
    known = begin(url, found)
    components = document["components"]["schemas"]
    components["KeyValue"]["oneOf"][0] = components["KeyText"]
    value = components["KeyValue"]
    fill_part(components["QueuePushDedupe"], found["dedupe"], value)
    fill_part(components["QueueThenAdd"], found["batch"], value)
    fill_part(components["QueueThenPublish"], found["event"], value)
    fill_part(components["QueueThenPush"], found["queue"], value)
    paths = {}
    for path, methods in document["paths"].items():
        if "{name}" not in path:
            paths[path] = methods
            continue
        for name, placeholders in found[path.split("/")[2]].items():
            filled = paths.setdefault(path.replace("{name}", name), {})
            for method, operation in methods.items():
                # Who leaves a guard gives nothing back to its limits.
                needed = found["leave"].get(name) if path.startswith("/v1/guard/") and path.endswith("/leave") else None
                filled[method] = fill_operation(operation, components, placeholders, needed, known)
                filled[method]["operationId"] += f".{name}"
    document["paths"] = paths
    json.dump(document, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
