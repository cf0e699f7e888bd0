//! Staged source for mdBook: pages with included documents, and links that are valid in the book.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path, PathBuf};

use crate::Result;

/// Folder of the pages.
const PAGES: &str = "book/src";

/// Writes the staged source below `to` and returns the number of its pages. A page that SUMMARY.md
/// lacks is an error.
pub(super) fn write(root: &Path, to: &Path) -> Result<usize> {
    if to.exists() {
        fs::remove_dir_all(to)?;
    }
    let mut files = Vec::new();
    list(&root.join("book"), &mut files)?;
    let mut pages = BTreeMap::new();
    for file in &files {
        let inner = file.strip_prefix(root)?.to_owned();
        let target = to.join(inner.strip_prefix("book")?);
        fs::create_dir_all(target.parent().unwrap_or(to))?;
        match file.extension().is_some_and(|extension| extension == "md") {
            true => drop(pages.insert(inner, (target, fs::read_to_string(file)?))),
            false => drop(fs::copy(file, target)?),
        }
    }
    let included = included(&pages);
    let summary = pages.get(&Path::new(PAGES).join("SUMMARY.md"));
    let summary = summary.map(|(_, text)| text.clone()).unwrap_or_default();
    for (page, (target, text)) in &pages {
        let name = page.strip_prefix(PAGES)?.display().to_string();
        if name != "SUMMARY.md" && !summary.contains(&format!("({name})")) {
            return Err(format!("{}: not in SUMMARY.md", page.display()).into());
        }
        let (text, base) = match include(page, text) {
            Some(document) => (fs::read_to_string(root.join(&document))?, document),
            None => (text.clone(), page.clone()),
        };
        fs::write(target, rewrite(root, &text, &base, page, &included)?)?;
    }
    Ok(pages.len() - 1)
}

fn list(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        match path.is_dir() {
            true => list(&path, files)?,
            false => files.push(path),
        }
    }
    Ok(())
}

/// Document that a page consists of (`{{#include PATH}}`); `None` for any other page.
fn include(page: &Path, text: &str) -> Option<PathBuf> {
    let path = text.trim().strip_prefix("{{#include ")?.strip_suffix("}}")?;
    Some(resolve(page, path.trim()))
}

/// Included documents, each with the page that includes it.
fn included(pages: &BTreeMap<PathBuf, (PathBuf, String)>) -> BTreeMap<PathBuf, PathBuf> {
    let all = pages.iter();
    all.filter_map(|(page, (_, text))| Some((include(page, text)?, page.clone()))).collect()
}

/// Path from the root for a link in the file `base`.
fn resolve(base: &Path, link: &str) -> PathBuf {
    let mut path = base.parent().map(Path::to_owned).unwrap_or_default();
    for part in Path::new(link).components() {
        match part {
            Component::ParentDir => drop(path.pop()),
            Component::Normal(name) => path.push(name),
            _ => {}
        }
    }
    path
}

/// Relative link from one page to another.
fn relative(from: &Path, to: &Path) -> String {
    let depth = from.components().count() - Path::new(PAGES).components().count() - 1;
    let inner = to.strip_prefix(PAGES).unwrap_or(to);
    format!("{}{}", "../".repeat(depth), inner.display())
}

/// Text of a page with each inline link to a file rewritten, except in code blocks. Links are
/// relative to the file `base`. A link to a missing file is an error.
fn rewrite(
    root: &Path,
    text: &str,
    base: &Path,
    page: &Path,
    included: &BTreeMap<PathBuf, PathBuf>,
) -> Result<String> {
    let (mut out, mut in_code) = (String::new(), false);
    for (index, line) in text.lines().enumerate() {
        in_code ^= line.trim_start().starts_with("```");
        let mut rest = line;
        while let Some(at) = rest.find("](").filter(|_| !in_code) {
            let (Some(open), Some(end)) = (opening(&rest[..at]), rest[at..].find(')')) else {
                break;
            };
            let (label, link) = (&rest[open + 1..at], &rest[at + 2..at + end]);
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = resolve(base, path);
            let is_page = target.starts_with(PAGES) || included.contains_key(&target);
            out += &rest[..open];
            if path.is_empty() || path.contains(':') || path == "ADDRESS" {
                out += &rest[open..=at + end];
            } else if !root.join(&target).exists() {
                let (base, line) = (base.display(), index + 1);
                return Err(format!("{base}:{line}: no such file: {link}").into());
            } else if is_page {
                let target = included.get(&target).unwrap_or(&target);
                let anchor =
                    if anchor.is_empty() { "" } else { &rest[at + 2 + path.len()..at + end] };
                out += &format!("[{label}]({}{anchor})", relative(page, target));
            } else {
                out.truncate(out.strip_suffix('!').map_or(out.len(), str::len));
                out += label;
            }
            rest = &rest[at + end + 1..];
        }
        out += rest;
        out.push('\n');
    }
    Ok(out)
}

/// Index of the opening bracket for a closing bracket that follows `text`; `None` if unbalanced.
fn opening(text: &str) -> Option<usize> {
    let mut depth = 1;
    for (index, character) in text.char_indices().rev() {
        depth += match character {
            ']' => 1,
            '[' => -1,
            _ => 0,
        };
        if depth == 0 {
            return Some(index);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: links to pages and included documents are valid in the book, links to other files
    // become text, and a link to a missing file is an error.
    #[test]
    fn links_are_valid_in_the_book() {
        let root = crate::project::root();
        let page = Path::new("book/src/reference/tap.md");
        let included = [("README.md".into(), "book/src/start.md".into())].into();
        let text = "[a](../introduction.md#x) [b](../../../README.md) [`c`](../../../Cargo.toml)";
        let done = rewrite(&root, text, page, page, &included).unwrap();
        assert_eq!(done, "[a](../introduction.md#x) [b](../start.md) `c`\n");
        let code = "```\n[a](no.md)\n```";
        assert_eq!(rewrite(&root, code, page, page, &included).unwrap().trim(), code);
        let failed = rewrite(&root, "[a](no.md)", page, page, &included).unwrap_err();
        assert_eq!(failed.to_string(), "book/src/reference/tap.md:1: no such file: no.md");
    }
}
