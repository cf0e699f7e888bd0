//! passt: user-mode networking with a vhost-user device, as an independent peer of the virtio
//! driver.
//!
//! Debian 12's version lacks `--vhost-user`. The program of the Debian 13 backports runs on the
//! host, by means of the dynamic loader and the C library of Debian 13.

use std::process::Command;

use crate::Result;
use crate::apt::Apt;
use crate::store::Store;
use crate::tools::Tools;

/// Packages, each with the allowed suites.
const PACKAGES: [(&str, &[&str]); 2] =
    [("passt", &["trixie-backports"]), ("libc6", &["trixie", "trixie-updates"])];

/// Downloads passt, unless it is cached.
pub fn prepare() -> Result<()> {
    unpacked().map(|_| ())
}

/// Command that starts passt, without arguments.
pub fn command() -> Result<Command> {
    Ok(unpacked()?.command("bin/passt"))
}

fn unpacked() -> Result<Tools> {
    let store = Store::open()?;
    let root = store.folder("passt", "1", |root| {
        let apt = Apt::update(&store)?;
        let packages = PACKAGES.map(|(name, suites)| newest(&apt, name, suites));
        apt.unpack_exactly(&packages.into_iter().collect::<Result<Vec<_>>>()?, root)
    })?;
    Ok(Tools::unpacked(&root))
}

/// `name=version` of the newest version of a package in these suites; an error if there is none.
fn newest(apt: &Apt, name: &str, suites: &[&str]) -> Result<String> {
    let versions = apt.versions(name)?;
    let found = versions.iter().find(|(_, suite)| suites.contains(&suite.as_str()));
    let Some((version, _)) = found else {
        return Err(format!("{name} is not in {}; there are {versions:?}", suites.join(" or ")))?;
    };
    Ok(format!("{name}={version}"))
}
