//! The software bill of materials: every package of the build, as pinned by Cargo.lock, in CycloneDX 1.5. Reproducible:
//! it contains no time and no random id.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde_json::{Value, json};

use super::{PACKAGE, Release, write};
use crate::cargo_command;

const FILE: &str = "mgp.cdx.json";

pub(super) fn make(release: &Release) -> Result<String, String> {
    let metadata = cargo_command(&["metadata", "--format-version", "1", "--locked"]).output();
    let metadata = metadata.map_err(|why| format!("cargo metadata: {why}"))?;
    if !metadata.status.success() {
        return Err(String::from_utf8_lossy(&metadata.stderr).into_owned());
    }
    let metadata: Value =
        serde_json::from_slice(&metadata.stdout).map_err(|why| why.to_string())?;
    let lock = fs::read_to_string("Cargo.lock").map_err(|why| format!("Cargo.lock: {why}"))?;
    let bom = render_bom(&metadata, &parse_checksums(&lock), PACKAGE)?;
    let text = serde_json::to_string_pretty(&bom).expect("a document is JSON") + "\n";
    write(&release.folder.join(FILE), text)?;
    let parts = bom["components"].as_array().map_or(0, Vec::len);
    Ok(format!("{FILE}: {parts} components"))
}

/// The SHA-256 of each package's archive, by name and version.
fn parse_checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let mut found = BTreeMap::new();
    for part in lock.split("[[package]]").skip(1) {
        let value = |key: &str| {
            let line = part.lines().find_map(|line| line.strip_prefix(key))?;
            let text = line.trim_start().strip_prefix('=')?.trim();
            Some(text.trim_matches('"').to_owned())
        };
        if let (Some(name), Some(version), Some(sum)) =
            (value("name"), value("version"), value("checksum"))
        {
            found.insert((name, version), sum);
        }
    }
    found
}

fn render_bom(
    metadata: &Value,
    checksums: &BTreeMap<(String, String), String>,
    root: &str,
) -> Result<Value, String> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let packages: BTreeMap<String, Value> = list(&metadata["packages"])
        .into_iter()
        .map(|package| (text(&package["id"]), package))
        .collect();
    let dependencies_of: BTreeMap<String, Vec<String>> = list(&metadata["resolve"]["nodes"])
        .into_iter()
        .map(|node| {
            let needed = list(&node["deps"]).into_iter().filter(is_built);
            let needed = needed.map(|dep| text(&dep["pkg"])).collect();
            (text(&node["id"]), needed)
        })
        .collect();
    let found = packages.iter().find(|(_, package)| package["name"] == root);
    let (root, _) = found.ok_or_else(|| format!("there is no package {root}"))?;
    let (mut seen, mut open) = (BTreeSet::new(), vec![root.clone()]);
    while let Some(id) = open.pop() {
        if seen.insert(id.clone()) {
            open.extend(dependencies_of.get(&id).into_iter().flatten().cloned());
        }
    }
    let purl = |id: &str| {
        let package = &packages[id];
        format!(
            "pkg:cargo/{}@{}",
            text(&package["name"]),
            text(&package["version"])
        )
    };
    let component = |id: &String| {
        let package = &packages[id];
        let (name, version) = (text(&package["name"]), text(&package["version"]));
        let mut component = json!({
            "type": if id == root { "application" } else { "library" },
            "bom-ref": purl(id), "name": name, "version": version, "purl": purl(id),
        });
        if let Some(licence) = package["license"].as_str() {
            // An old notation of "either".
            let licence = licence.replace('/', " OR ");
            component["licenses"] = json!([{"expression": licence}]);
        }
        if let Some(sum) = checksums.get(&(name, version)) {
            component["hashes"] = json!([{"alg": "SHA-256", "content": sum}]);
        }
        component
    };
    let mut components: Vec<Value> = seen
        .iter()
        .filter(|id| *id != root)
        .map(component)
        .collect();
    components.sort_by_key(|component| text(&component["bom-ref"]));
    let mut dependencies: Vec<Value> = seen
        .iter()
        .map(|id| {
            let needed = dependencies_of.get(id).into_iter().flatten();
            let needed: BTreeSet<String> = needed.map(|id| purl(id)).collect();
            json!({"ref": purl(id), "dependsOn": needed})
        })
        .collect();
    dependencies.sort_by_key(|dependency| text(&dependency["ref"]));
    Ok(json!({
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "metadata": {"component": component(root)},
        "components": components, "dependencies": dependencies,
    }))
}

/// Whether a build needs the dependency, not only tests.
fn is_built(dependency: &Value) -> bool {
    let kinds = dependency["dep_kinds"].as_array();
    kinds.is_some_and(|kinds| kinds.iter().any(|kind| kind["kind"] != "dev"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bom_has_only_dependencies_of_the_build() {
        let package = |id: &str, name: &str| json!({"id": id, "name": name, "version": "1.0.0", "license": "MIT/Apache-2.0"});
        let dep = |id: &str, kind: Value| json!({"pkg": id, "dep_kinds": [{"kind": kind}]});
        let metadata = json!({
            "packages": [package("r", "root"), package("a", "aa"), package("b", "bb"), package("t", "tt")],
            "resolve": {"nodes": [
                {"id": "r", "deps": [dep("a", Value::Null), dep("t", "dev".into())]},
                {"id": "a", "deps": [dep("b", "build".into())]},
                {"id": "b", "deps": []}, {"id": "t", "deps": []}]},
        });
        let lock = "[[package]]\nname = \"aa\"\nversion = \"1.0.0\"\nchecksum = \"0a\"\n";
        let bom = render_bom(&metadata, &parse_checksums(lock), "root").unwrap();
        let names: Vec<_> = bom["components"]
            .as_array()
            .unwrap()
            .iter()
            .map(|c| &c["name"])
            .collect();
        assert_eq!(names, ["aa", "bb"]);
        assert_eq!(bom["components"][0]["hashes"][0]["content"], "0a");
        assert_eq!(
            bom["components"][0]["licenses"][0]["expression"],
            "MIT OR Apache-2.0"
        );
        assert_eq!(bom["metadata"]["component"]["purl"], "pkg:cargo/root@1.0.0");
        assert_eq!(
            bom["dependencies"][2]["dependsOn"],
            json!(["pkg:cargo/aa@1.0.0"])
        );
    }
}
