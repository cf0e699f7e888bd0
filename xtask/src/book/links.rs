//! Check of the built book: every relative link must name an existing file and, after `#`, an
//! existing element of that file.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::Result;

/// Tags around the content of a page; mdBook generates everything outside.
const CONTENT: (&str, &str) = ("<main>", "</main>");

/// Links without a target in the pages below `out`, one line each.
pub(super) fn broken(out: &Path) -> Result<Vec<String>> {
    let mut pages = BTreeMap::new();
    read(out, &mut pages)?;
    let mut broken = Vec::new();
    // The page for printing repeats the content of the other pages and is not checked.
    for (page, text) in pages.iter().filter(|(page, _)| !page.ends_with("print.html")) {
        let content = text.split_once(CONTENT.0).map_or("", |(_, text)| text);
        let content = content.split_once(CONTENT.1).map_or(content, |(text, _)| text);
        for link in values(content, " href=\"").chain(values(content, " src=\"")) {
            if !has_target(&pages, page, link) {
                let page = page.strip_prefix(out).unwrap_or(page).display();
                broken.push(format!("{page}: no such target: {link}"));
            }
        }
    }
    Ok(broken)
}

fn read(folder: &Path, pages: &mut BTreeMap<PathBuf, String>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            read(&path, pages)?;
        } else if path.extension().is_some_and(|extension| extension == "html") {
            let text = fs::read_to_string(&path)?;
            pages.insert(path, text);
        }
    }
    Ok(())
}

/// Values of all occurrences of an attribute.
fn values<'a>(text: &'a str, attribute: &str) -> impl Iterator<Item = &'a str> {
    text.split(attribute).skip(1).filter_map(|rest| Some(rest.split_once('"')?.0))
}

fn has_target(pages: &BTreeMap<PathBuf, String>, page: &Path, link: &str) -> bool {
    let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
    if path.contains("://") || path.starts_with("mailto:") {
        return true;
    }
    let target = match path {
        "" => page.to_owned(),
        path => page.parent().unwrap_or(page).join(path),
    };
    let Ok(target) = target.canonicalize() else { return false };
    let same = |page: &&PathBuf| page.canonicalize().is_ok_and(|page| page == target);
    let Some(text) = pages.keys().find(same).and_then(|page| pages.get(page)) else {
        return anchor.is_empty();
    };
    anchor.is_empty() || text.contains(&format!(" id=\"{anchor}\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: a link to a missing file and a link to a missing element are reported; other links are
    // not.
    #[test]
    fn broken_links_are_found() {
        let out = std::env::temp_dir().join(format!("mqnet-links-{}", std::process::id()));
        fs::create_dir_all(&out).unwrap();
        let text = "<a href=\"no.html\"><main><a href=\"b.html#x\"> <a href=\"b.html#y\"> \
                    <img src=\"no.svg\"> <a href=\"https://x/\"> <a href=\"#z\"></main>";
        fs::write(out.join("a.html"), text).unwrap();
        fs::write(out.join("b.html"), "<main><h2 id=\"x\"></main>").unwrap();
        let found = broken(&out);
        fs::remove_dir_all(&out).unwrap();
        let targets = ["b.html#y", "#z", "no.svg"];
        let lines = targets.map(|target| format!("a.html: no such target: {target}"));
        assert_eq!(found.unwrap(), lines);
    }
}
