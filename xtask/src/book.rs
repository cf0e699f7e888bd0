//! `cargo xtask book`: builds the book with mdBook and checks its links.
//!
//! Pages include documents of the root (`{{#include}}`), and link to these and to other files of
//! the checkout. In the staged source, a link to an included document becomes a link to its page. A
//! link to another file becomes plain text.

mod links;
mod stage;

use std::path::{Path, PathBuf};

use mqnet_guest::Store;

use crate::{Result, project};

const VERSION: &str = "0.4.52";

/// Builds `target/book` from `book/` and checks the links of every page.
///
/// If mdBook is not available, only the sources are staged and checked; with `MQNET_NO_SKIP=1` that
/// is an error.
pub(crate) fn run() -> Result<()> {
    let source = project::target().join("book-source");
    let pages = stage::write(&project::root(), &source)?;
    let program = match program() {
        Ok(program) => program,
        Err(error) if project::no_skip() => return Err(error),
        Err(error) => {
            println!("SKIP: {error}");
            return Ok(());
        }
    };
    let out = project::target().join("book");
    build(&program, &source, &out)?;
    let broken = links::broken(&out)?;
    for link in &broken {
        println!("{link}");
    }
    match broken.len() {
        0 => println!("book: {pages} pages: {}", out.join("index.html").display()),
        count => return Err(format!("book: {count} broken links").into()),
    }
    Ok(())
}

fn build(program: &Path, source: &Path, out: &Path) -> Result<()> {
    let mut mdbook = project::command(&program.to_string_lossy());
    let output = mdbook.arg("build").arg(source).arg("--dest-dir").arg(out).output()?;
    let text = String::from_utf8_lossy(&output.stderr);
    // Warnings also fail the build, for example the one for a page that SUMMARY.md lacks.
    if !output.status.success() || text.contains("[WARN]") || text.contains("[ERROR]") {
        return Err(format!("mdbook: {}: {text}", output.status).into());
    }
    Ok(())
}

/// Path of mdBook in the user's cache folder; built from source if it is missing.
fn program() -> Result<PathBuf> {
    let folder = Store::in_cache("tools")?.folder("mdbook", VERSION, |folder| {
        println!("installing mdbook {VERSION} (builds the book)");
        let mut cargo = project::command("cargo");
        cargo.args(["install", "--quiet", "--locked", "--debug", "--no-default-features"]);
        cargo.args(["--features", "search", "--version", VERSION, "mdbook", "--root"]);
        cargo.arg(folder).env("CARGO_PROFILE_DEV_DEBUG", "false").env_remove("CARGO_TARGET_DIR");
        let status = cargo.status()?;
        if !status.success() {
            return Err(format!("mdbook {VERSION}: cargo install: {status}").into());
        }
        Ok(())
    })?;
    Ok(folder.join("bin/mdbook"))
}
