//! Commands of the book: the `sh` blocks of README.md and of each page of `book/src` run unchanged
//! and in order. Each page has a new host.
//!
//! The host of a page has its own network, mounts and processes, an empty `/run`, and a working
//! directory with the release programs and the packaging files at the same paths as in a checkout.

use std::fmt::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use mqnet_testkit::{Folder, Need, has, program};

use crate::library;

/// Marks of blocks that these tests do not run, with the reason.
const ELSEWHERE: [(&str, &str); 3] = [
    ("guest", "needs a virtual machine: the guest tests boot their own"),
    ("hardware", "needs a device, a kernel module or a second machine"),
    ("build", "builds, installs or measures for minutes: other steps of `cargo xtask test` do"),
];

/// Maximum number of blocks that these tests do not run.
const NOT_RUN: usize = 24;

/// Programs that the pages use.
const NEEDS: [Need; 7] = [
    Need::Root,
    Need::Program("curl"),
    Need::Program("ethtool"),
    Need::Program("ip"),
    Need::Program("iperf3"),
    Need::Program("promtool"),
    Need::Program("tshark"),
];

/// Path of the example of the library in the working directory.
const EXAMPLE: &str = "target/release/examples/vpn";

/// Maximum duration of the blocks of one page in seconds.
const LIMIT: &str = "60";

/// Start of each script: a failed command ends it, and the exit handler prints its block.
const PREAMBLE: &str = "\
set -eu
mount -t tmpfs tmpfs /run
ip link set lo up
block=preamble
trap 'status=$?; [ $status = 0 ] || echo \"$block: exit code $status\" >&2' EXIT
";

/// Block of commands.
struct Block {
    /// Page and line, for messages.
    place: String,
    /// Mark behind `sh,`; empty for a block that runs.
    mark: String,
    commands: String,
}

/// Root of the checkout.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Paths of the pages below `folder`, sorted.
fn pages(folder: &str) -> Vec<PathBuf> {
    let mut pages = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder of the book") {
            let path = entry.expect("an entry of the book").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    pages.sort();
    assert!(!pages.is_empty(), "{folder}: no pages");
    pages
}

/// Blocks of a page in the language `sh`. Fails if a block in another language contains commands.
fn blocks(page: &Path) -> Vec<Block> {
    let text = std::fs::read_to_string(page).expect("a page");
    let name = page.strip_prefix(root()).unwrap_or(page).display().to_string();
    let mut blocks: Vec<Block> = Vec::new();
    let mut open: Option<bool> = None;
    for (index, line) in text.lines().enumerate() {
        let place = format!("{name}:{}", index + 1);
        let (fence, is_sh) = (line.trim_start().strip_prefix("```"), open == Some(true));
        match (fence, open) {
            (Some(info), None) => {
                assert!(!["console", "bash", "shell"].contains(&info), "{place}: use `sh`");
                let (language, mark) = info.split_once(',').unwrap_or((info, ""));
                open = Some(language == "sh");
                if language == "sh" {
                    let (mark, commands) = (mark.to_owned(), String::new());
                    blocks.push(Block { place, mark, commands });
                }
            }
            (Some(_), Some(_)) => open = None,
            (None, _) if is_sh => {
                let block = blocks.last_mut().expect("an open block");
                let _ = writeln!(block.commands, "{line}");
            }
            (None, _) => {}
        }
    }
    assert!(open.is_none(), "{name}: a block is not closed");
    blocks
}

/// Working directory with the programs and files that the pages use.
fn checkout(has_example: bool) -> Folder {
    let folder = Folder::create();
    for name in ["target/release/examples", "bin"] {
        std::fs::create_dir_all(folder.file(name)).expect("a folder");
    }
    let program = std::path::absolute(program()).expect("the path of the program");
    let example = has_example.then(|| (library::example(), EXAMPLE));
    let files = [
        (program.clone(), "bin/mqnet"),
        (program, "target/release/mqnet"),
        (root().join("packaging"), "packaging"),
    ];
    for (file, place) in files.into_iter().chain(example) {
        symlink(&file, folder.file(place)).expect("a link to a file of the checkout");
    }
    folder
}

/// Runs the blocks of a page in one shell on a new host.
fn run_page(page: &Path) {
    let (mut script, mut count) = (PREAMBLE.to_owned(), 0);
    for block in blocks(page).iter().filter(|block| block.mark.is_empty()) {
        let _ = write!(script, "block={}\nset -x\n{}set +x\n", block.place, block.commands);
        count += 1;
    }
    if count == 0 {
        return;
    }
    let folder = checkout(script.contains(EXAMPLE));
    let path = std::env::var("PATH").unwrap_or_default();
    let file = folder.file("page.sh");
    std::fs::write(&file, script).expect("a script");
    let output = Command::new("timeout")
        .args(["--kill-after=5", LIMIT, "unshare", "--net", "--mount", "--pid", "--fork"])
        .args(["--kill-child", "--mount-proc", "sh"])
        .arg(&file)
        .env("PATH", format!("{}:{path}", folder.file("bin").display()))
        .current_dir(folder.file(""))
        .output()
        .expect("unshare and timeout");
    let page = page.strip_prefix(root()).unwrap_or(page).display();
    let out = String::from_utf8_lossy(&output.stdout);
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{page}: {}\n{out}\n{err}", output.status);
    println!("{page}: {count} blocks");
}

fn run(folder: &str) {
    if has(&NEEDS) {
        pages(folder).iter().for_each(|page| run_page(page));
    }
}

// Goal: the commands of README.md work unchanged.
#[test]
fn commands_of_the_readme_work() {
    if has(&NEEDS) {
        run_page(&root().join("README.md"));
    }
}

// Goal: the commands of the tutorial work unchanged.
#[test]
fn commands_of_the_tutorial_work() {
    run("book/src/tutorial");
}

// Goal: the commands of the how-to pages work unchanged.
#[test]
fn commands_of_the_howto_pages_work() {
    run("book/src/howto");
}

// Goal: the commands of all other pages work unchanged.
#[test]
fn commands_of_the_other_pages_work() {
    for folder in ["book/src/reference", "book/src/explanation", "book/src/measurements"] {
        run(folder);
    }
}

// Goal: a block that does not run has a known mark, and the number of such blocks does not grow.
#[test]
fn blocks_that_do_not_run_have_a_reason() {
    let pages = pages("book/src").into_iter().chain([root().join("README.md")]);
    let mut count = 0;
    for block in pages.flat_map(|page| blocks(&page)).filter(|block| !block.mark.is_empty()) {
        let reason = ELSEWHERE.iter().find(|(mark, _)| *mark == block.mark);
        let (_, reason) = reason.unwrap_or_else(|| panic!("{}: unknown mark", block.place));
        println!("{}: {reason}", block.place);
        count += 1;
    }
    assert!(count <= NOT_RUN, "{count} blocks do not run, at most {NOT_RUN}");
}
