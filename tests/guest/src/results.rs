//! Results of scripts, read from an archive on the second serial port.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::{Done, Result};

pub(crate) type Results = (BTreeMap<String, Done>, BTreeMap<String, Vec<u8>>);

/// Reads the archive that `init.sh` has written: `NAME.status` and `NAME.output` of each script,
/// and other files. An empty archive is an error.
pub(crate) fn read_results(path: &Path) -> Result<Results> {
    let mut files = BTreeMap::new();
    for entry in tar::Archive::new(File::open(path)?).entries()? {
        let mut entry = entry?;
        if entry.header().entry_type().is_file() {
            let name = entry.path()?.to_string_lossy().trim_start_matches("./").to_owned();
            let mut content = Vec::new();
            entry.read_to_end(&mut content)?;
            files.insert(name, content);
        }
    }
    if files.is_empty() {
        return Err("the archive is empty".into());
    }
    let scripts = files.keys().filter_map(|name| name.strip_suffix(".status"));
    let scripts: Vec<String> = scripts.map(str::to_owned).collect();
    let mut done = BTreeMap::new();
    for script in scripts {
        let mut take = |kind: &str| {
            let bytes = files.remove(&format!("{script}.{kind}")).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let status = take("status").trim().parse()?;
        done.insert(script.clone(), Done { status, output: take("output") });
    }
    Ok((done, files))
}
