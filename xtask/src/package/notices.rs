//! Bill of materials (CycloneDX 1.5), and licenses of all crates in the program.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::{Release, output};
use crate::{Result, project};

/// Paths of the bill of materials and the license texts.
pub(super) struct Notices {
    pub(super) materials: PathBuf,
    pub(super) licenses: PathBuf,
    /// Folder with the sources of external crates.
    pub(super) sources: PathBuf,
}

/// Crate that the program contains.
struct Crate {
    name: String,
    version: String,
    license: String,
    folder: PathBuf,
    is_ours: bool,
}

/// Writes the bill of materials and the license texts.
pub(super) fn write(release: &Release) -> Result<Notices> {
    let crates = crates()?;
    let materials = release.out.join(format!("mqnet-{}.cdx.json", release.version));
    fs::write(&materials, format!("{:#}\n", bill(release, &crates)))?;
    let licenses = release.folder("notices")?.join("crates.txt");
    fs::write(&licenses, texts(&crates)?)?;
    let other = crates.iter().find(|one| !one.is_ours).ok_or("the program has no other crates")?;
    let sources = other.folder.parent().unwrap_or(&other.folder).to_owned();
    Ok(Notices { materials, licenses, sources })
}

/// Crates that the program contains, without those for builds and tests only.
fn crates() -> Result<Vec<Crate>> {
    let mut tree = project::command("cargo");
    tree.args(["tree", "--locked", "-p", "mqnet", "--edges", "normal", "--prefix", "none"]);
    tree.args(["--target", "all", "--format", "{p}"]);
    let text = output(&mut tree)?;
    let name = |line: &str| {
        let mut words = line.split_whitespace();
        Some((words.next()?.to_owned(), words.next()?.trim_start_matches('v').to_owned()))
    };
    let used: BTreeSet<(String, String)> = text.lines().filter_map(name).collect();
    let mut metadata = project::command("cargo");
    metadata.args(["metadata", "--locked", "--format-version", "1"]);
    let metadata: Value = serde_json::from_str(&output(&mut metadata)?)?;
    let packages = metadata["packages"].as_array().ok_or("cargo metadata: no packages")?;
    let text = |package: &Value, key: &str| package[key].as_str().unwrap_or_default().to_owned();
    let mut crates: Vec<Crate> = packages
        .iter()
        .map(|package| Crate {
            name: text(package, "name"),
            version: text(package, "version"),
            license: text(package, "license"),
            folder: Path::new(&text(package, "manifest_path")).with_file_name(""),
            is_ours: package["source"].is_null(),
        })
        .filter(|one| used.contains(&(one.name.clone(), one.version.clone())))
        .collect();
    crates.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
    Ok(crates)
}

fn bill(release: &Release, crates: &[Crate]) -> Value {
    let component = |one: &Crate| {
        let Crate { name, version, license, .. } = one;
        let purl = format!("pkg:cargo/{name}@{version}");
        json!({
            "type": "library", "name": name, "version": version, "purl": purl, "bom-ref": purl,
            "licenses": [{ "expression": license.replace('/', " OR ") }],
        })
    };
    let others = crates.iter().filter(|one| !one.is_ours);
    json!({
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "metadata": { "component": {
            "type": "application", "name": "mqnet", "version": release.version,
            "bom-ref": format!("mqnet@{}", release.version),
            "licenses": [{ "expression": "MIT OR Apache-2.0" }],
        }},
        "components": others.map(component).collect::<Vec<_>>(),
    })
}

/// List of external crates with their licenses, followed by each license text with its crates.
fn texts(crates: &[Crate]) -> Result<String> {
    let mut out = "Crates in the program mqnet, and their licenses:\n\n".to_owned();
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for one in crates.iter().filter(|one| !one.is_ours) {
        let name = format!("{} {}", one.name, one.version);
        out += &format!("{name}: {}\n", one.license);
        for entry in fs::read_dir(&one.folder)? {
            let path = entry?.path();
            let file = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
            let begins = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE"];
            if path.is_file() && begins.iter().any(|begin| file.starts_with(begin)) {
                let text = String::from_utf8_lossy(&fs::read(&path)?).trim().to_owned();
                texts.entry(text).or_default().push(name.clone());
            }
        }
    }
    let line = "=".repeat(72);
    for (text, mut names) in texts {
        names.sort();
        names.dedup();
        out += &format!("\n{line}\n{}:\n\n{text}\n", names.join(", "));
    }
    Ok(out)
}
