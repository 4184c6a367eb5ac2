// Prints the YAML files named on the command line as one JSON array: Python's standard library reads no YAML.
import { readFileSync } from "node:fs";
import { parse } from "yaml";

console.log(JSON.stringify(process.argv.slice(2).map((path) => parse(readFileSync(path, "utf8")))));
