//! Kernel modules of a guest: listed modules with their dependencies, uncompressed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::Result;
use crate::apt::run;
use crate::kernel::Files;
use crate::tools::Tools;

/// Modules that guests can load. A module that the kernel lacks or has built in is omitted.
pub(crate) const WANTED: [&str; 41] = [
    "act_gact",
    "act_mirred",
    "act_police",
    "act_skbedit",
    "af_packet",
    "bridge",
    "cls_bpf",
    "cls_flower",
    "cls_matchall",
    "cls_u32",
    "dummy",
    "ifb",
    "igb",
    "ipv6",
    "sch_cake",
    "sch_drr",
    "sch_fq",
    "sch_fq_codel",
    "sch_htb",
    "sch_ingress",
    "sch_mqprio",
    "sch_netem",
    "sch_prio",
    "sch_tbf",
    "tcp_bbr",
    "tun",
    "uio_pci_generic",
    "vduse",
    "veth",
    "vfio_iommu_type1",
    "vfio_pci",
    "vhost_net",
    "vhost_vdpa",
    "virtio_blk",
    "virtio_console",
    "virtio_iommu",
    "virtio_net",
    "virtio_pci",
    "virtio_rng",
    "virtio_vdpa",
    "xsk_diag",
];

/// Installs the modules of `kernel` in `root` (`lib/modules/VERSION`), with their index.
pub(crate) fn install(tools: &Tools, kernel: &Files, names: &[&str], root: &Path) -> Result<()> {
    let index = kernel.modules.join("modules.dep");
    let index = fs::read_to_string(&index).map_err(|e| format!("{}: {e}", index.display()))?;
    let version = kernel.modules.file_name().unwrap_or_default();
    let to = root.join("lib/modules").join(version);
    for module in closure(&index, names) {
        let from = kernel.modules.join(&module);
        let file = to.join(module.strip_suffix(".xz").unwrap_or(&module));
        if let Some(folder) = file.parent() {
            fs::create_dir_all(folder)?;
        }
        if module.ends_with(".xz") {
            let plain = fs::File::create(&file)?;
            let mut unpack = tools.command("bin/xz");
            let status = unpack.arg("-dc").arg(&from).stdout(plain).status()?;
            if !status.success() {
                return Err(format!("{}: xz: {status}", from.display()).into());
            }
        } else {
            fs::copy(&from, &file)?;
        }
    }
    for list in ["modules.order", "modules.builtin", "modules.builtin.modinfo"] {
        if kernel.modules.join(list).exists() {
            fs::copy(kernel.modules.join(list), to.join(list))?;
        }
    }
    run(tools.depmod().arg("-b").arg(root).arg(version)).map(|_| ())
}

/// Content of one module, without its dependencies, for a guest that needs a module outside
/// [`WANTED`].
pub(crate) fn one(tools: &Tools, kernel: &Files, wanted: &str) -> Result<Vec<u8>> {
    let index = fs::read_to_string(kernel.modules.join("modules.dep"))?;
    let mut paths = index.lines().filter_map(|line| line.split_once(':')).map(|(path, _)| path);
    let path = paths.find(|path| name(path) == wanted);
    let file = kernel.modules.join(path.ok_or(format!("the kernel has no module {wanted}"))?);
    if file.extension().is_none_or(|kind| kind != "xz") {
        return Ok(fs::read(file)?);
    }
    Ok(tools.command("bin/xz").arg("-dc").arg(&file).output()?.stdout)
}

/// Paths of the named modules and of all their dependencies, from the text of `modules.dep`.
fn closure(index: &str, names: &[&str]) -> BTreeSet<String> {
    let lines = index.lines().filter_map(|line| line.split_once(':'));
    let needs: BTreeMap<&str, &str> = lines.collect();
    let by_name: BTreeMap<String, &str> = needs.keys().map(|path| (name(path), *path)).collect();
    let wanted = names.iter().filter_map(|name| by_name.get(*name));
    // Each entry of the index includes indirect dependencies.
    wanted
        .flat_map(|path| std::iter::once(*path).chain(needs[path].split_whitespace()))
        .map(str::to_owned)
        .collect()
}

/// Module name of a path: `kernel/net/tls-x.ko.xz` is `tls_x`.
fn name(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    file.split(".ko").next().unwrap_or(file).replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: a module is selected with its dependencies; a name that the index lacks is omitted.
    #[test]
    fn needs_are_followed() {
        let index = "kernel/a/vhost-net.ko.xz: kernel/a/vhost.ko.xz kernel/b/tap.ko.xz\n\
                     kernel/a/vhost.ko.xz:\nkernel/b/tap.ko.xz:\nkernel/b/other.ko.xz:\n";
        let found = closure(index, &["vhost_net", "missing"]);
        let found: Vec<&str> = found.iter().map(String::as_str).collect();
        assert_eq!(
            found,
            ["kernel/a/vhost-net.ko.xz", "kernel/a/vhost.ko.xz", "kernel/b/tap.ko.xz"]
        );
    }

    // Goal: the list of modules is sorted, so that duplicates are visible.
    #[test]
    fn the_list_is_sorted() {
        assert!(WANTED.is_sorted_by(|a, b| a < b));
    }
}
