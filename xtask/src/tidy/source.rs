//! Rust file as the rules read it: lines, tokens, comments, and test lines.

use super::lex::{self, Comment, Kind, Token};

/// Lines of an item that exists only under `cfg(test)`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TestItem {
    pub(crate) first: usize,
    pub(crate) last: usize,
    /// True for `mod x { ... }`, which could be moved to a separate file.
    pub(crate) inline_module: bool,
}

/// Rust file, parsed once for all rules.
#[derive(Debug)]
pub(crate) struct Source {
    /// Path from the root of the repository.
    pub(crate) path: String,
    pub(crate) text: String,
    pub(crate) tokens: Vec<Token>,
    pub(crate) comments: Vec<Comment>,
    pub(crate) test_items: Vec<TestItem>,
    /// True if the file contains only test code, by its path or because only a test module declares
    /// it.
    pub(crate) test_only: bool,
}

impl Source {
    pub(crate) fn new(path: &str, text: &str) -> Self {
        let (tokens, comments) = lex::split(text);
        let test_items = test_items(&tokens);
        let test_only = is_test_place(path) || has_inner_test_cfg(&tokens);
        Self {
            path: path.to_owned(),
            text: text.to_owned(),
            tokens,
            comments,
            test_items,
            test_only,
        }
    }

    /// First folder of the path, which is the layer of the file.
    pub(crate) fn layer(&self) -> &str {
        self.path.split('/').next().unwrap_or_default()
    }

    pub(crate) fn is_test_line(&self, line: usize) -> bool {
        self.test_only
            || self.test_items.iter().any(|item| (item.first..=item.last).contains(&line))
    }

    /// True if the tokens from `at` on are exactly the blank-separated `pattern`.
    pub(crate) fn matches(&self, at: usize, pattern: &str) -> bool {
        let mut tokens = self.tokens[at.min(self.tokens.len())..].iter();
        pattern.split(' ').all(|want| tokens.next().is_some_and(|token| token.is(want)))
    }

    /// Indices of the tokens at which `pattern` starts.
    pub(crate) fn find<'a>(&'a self, pattern: &'a str) -> impl Iterator<Item = usize> + 'a {
        (0..self.tokens.len()).filter(move |&at| self.matches(at, pattern))
    }

    /// True if a comment with `words` ends on one of the lines `first..=last`. Comments on adjacent
    /// lines are one comment, so `words` may be far above.
    pub(crate) fn comment_near(&self, words: &str, first: usize, last: usize) -> bool {
        let mut said = None;
        let mut previous_last = 0;
        for comment in self.comments.iter().filter(|comment| comment.line <= last) {
            let joins = comment.line <= previous_last + 1 && previous_last != 0;
            said = said.filter(|_| joins);
            if comment.text.contains(words) {
                said = Some(comment.line);
            }
            if said.is_some() && comment.last_line >= first {
                return true;
            }
            previous_last = comment.last_line;
        }
        false
    }

    /// Index of the token that closes the bracket at `open`, or of the last token.
    pub(crate) fn closing(&self, open: usize) -> usize {
        closing(&self.tokens, open)
    }

    /// Attributes directly before the item at token `at`: token ranges without the brackets, the
    /// nearest first. Visibility and similar prefixes before `at` are skipped.
    pub(crate) fn attributes_before(&self, at: usize) -> Vec<std::ops::Range<usize>> {
        let mut found = Vec::new();
        let mut end = at;
        while end > 0 {
            let token = &self.tokens[end - 1];
            if token.is("]") {
                let Some(open) = opening(&self.tokens, end - 1) else { break };
                if open == 0 || !self.tokens[open - 1].is("#") {
                    break;
                }
                found.push(open + 1..end - 1);
                end = open - 1;
            } else if found.is_empty() && is_item_prefix(token) {
                end -= 1;
            } else {
                break;
            }
        }
        found
    }
}

/// True for a word or mark between the attributes of an item and its keyword: `pub(in a::b) const
/// ...`.
fn is_item_prefix(token: &Token) -> bool {
    const PREFIX: [&str; 12] = [
        "pub", "crate", "super", "self", "in", "(", ")", "::", "const", "async", "unsafe", "extern",
    ];
    PREFIX.iter().any(|word| token.is(word))
        || (token.kind == Kind::Literal && token.text.starts_with('"'))
}

/// True for files that Cargo builds only for tests, benchmarks and examples.
fn is_test_place(path: &str) -> bool {
    let mut folders: Vec<&str> = path.split('/').collect();
    folders.pop();
    folders.first() == Some(&"tests")
        || folders.iter().skip(1).any(|folder| ["tests", "benches", "examples"].contains(folder))
            && !folders.contains(&"src")
}

fn closing(tokens: &[Token], open: usize) -> usize {
    let mut depth = 0_i32;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        if ["(", "[", "{"].iter().any(|mark| token.is(mark)) {
            depth += 1;
        } else if [")", "]", "}"].iter().any(|mark| token.is(mark)) {
            depth -= 1;
            if depth == 0 {
                return at;
            }
        }
    }
    tokens.len().saturating_sub(1)
}

fn opening(tokens: &[Token], close: usize) -> Option<usize> {
    let mut depth = 0_i32;
    for at in (0..=close).rev() {
        if [")", "]", "}"].iter().any(|mark| tokens[at].is(mark)) {
            depth += 1;
        } else if ["(", "[", "{"].iter().any(|mark| tokens[at].is(mark)) {
            depth -= 1;
            if depth == 0 {
                return Some(at);
            }
        }
    }
    None
}

/// True for `cfg(test)` and `cfg(all(test, ...))`. False for `test` within `any` or `not`: such an
/// item exists outside tests too, and the rules of shipped code apply.
pub(crate) fn is_test_cfg(attribute: &[Token]) -> bool {
    let mut around: Vec<&str> = Vec::new();
    let mut word = "";
    for token in attribute {
        if token.is("(") {
            around.push(word);
        } else if token.is(")") {
            around.pop();
        } else if token.is("test")
            && around.first() == Some(&"cfg")
            && around.iter().all(|word| ["cfg", "all"].contains(word))
        {
            return true;
        }
        word = &token.text;
    }
    false
}

fn has_inner_test_cfg(tokens: &[Token]) -> bool {
    (2..tokens.len()).any(|at| {
        tokens[at - 2].is("#")
            && tokens[at - 1].is("!")
            && tokens[at].is("[")
            && is_test_cfg(&tokens[at + 1..closing(tokens, at)])
    })
}

fn test_items(tokens: &[Token]) -> Vec<TestItem> {
    let mut items = Vec::new();
    let mut at = 0;
    while at + 1 < tokens.len() {
        if !(tokens[at].is("#") && tokens[at + 1].is("[")) {
            at += 1;
            continue;
        }
        let close = closing(tokens, at + 1);
        if !is_test_cfg(&tokens[at + 2..close]) {
            at = close;
            continue;
        }
        let (last, inline_module) = item_end(tokens, close + 1);
        items.push(TestItem { first: tokens[at].line, last: tokens[last].line, inline_module });
        at = last + 1;
    }
    items
}

/// Index of the last token of the item, field or statement that starts at `from`, and true if it is
/// a module with a body.
fn item_end(tokens: &[Token], from: usize) -> (usize, bool) {
    const KEYWORDS: [&str; 13] = [
        "fn",
        "mod",
        "impl",
        "struct",
        "enum",
        "union",
        "trait",
        "use",
        "const",
        "static",
        "type",
        "macro_rules",
        "let",
    ];
    let mut keyword = None;
    let mut at = from;
    while at < tokens.len() {
        let token = &tokens[at];
        if token.is("{") {
            return (closing(tokens, at), keyword == Some("mod"));
        } else if token.is("(") || token.is("[") {
            at = closing(tokens, at);
        } else if token.is(";") || (token.is(",") && keyword.is_none()) {
            return (at, false);
        } else if token.is("}") {
            return (at.saturating_sub(1), false);
        } else if keyword.is_none() {
            keyword = KEYWORDS.into_iter().find(|word| token.is(word));
        }
        at += 1;
    }
    (tokens.len() - 1, false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_lines_are_the_lines_of_test_items() {
        let text = "fn a() {}\n#[cfg(test)]\n#[path = \"x\"]\nmod t {\n}\nfn b() {}\nstruct S {\n\
            #[cfg(test)]\nseen: u32,\nother: u32,\n}";
        let source = Source::new("memory/x/src/lib.rs", text);
        let tests: Vec<usize> = (1..=11).filter(|&line| source.is_test_line(line)).collect();
        assert_eq!(tests, [2, 3, 4, 5, 8, 9]);
        assert!(source.test_items[0].inline_module);
        assert!(!source.test_items[1].inline_module);
    }

    #[test]
    fn only_a_cfg_that_implies_test_makes_a_test() {
        let is_test = |attribute: &str| is_test_cfg(&lex::split(attribute).0);
        assert!(is_test("cfg(test)") && is_test("cfg(all(loom, test))"));
        assert!(!is_test("cfg(not(test))") && !is_test("cfg(any(test, loom))"));
        assert!(!is_test("cfg_attr(test, path = \"x\")") && !is_test("cfg(feature = \"test\")"));
    }

    #[test]
    fn places_that_cargo_builds_for_tests() {
        for path in ["tests/kit/src/a.rs", "memory/x/tests/a.rs", "memory/x/benches/a.rs"] {
            assert!(is_test_place(path), "{path}");
        }
        assert!(!is_test_place("memory/x/src/tests/a.rs"));
        assert!(!is_test_place("memory/x/src/lib.rs"));
    }

    #[test]
    fn a_long_comment_counts_from_its_last_line() {
        let source = Source::new("x.rs", "// Why: one\n// two\n// three\nfn a() {}\n\n// other\n");
        assert!(source.comment_near("Why:", 3, 4));
        assert!(!source.comment_near("Why:", 4, 6));
    }
}
