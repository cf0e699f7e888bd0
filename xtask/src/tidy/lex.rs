//! Splits Rust text into code tokens and comments, so that words in strings and calls over several
//! lines do not mislead a rule.
//!
//! The parser `syn` is not used because it drops comments, which many rules check.

/// Kind of a token. Rules compare texts only with tokens of the kinds `Word` and `Mark`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An identifier or a keyword.
    Word,
    /// A string, character or number.
    Literal,
    /// A lifetime or a loop label.
    Lifetime,
    /// One punctuation character, or `::`.
    Mark,
}

/// Token with its first line (from 1).
#[derive(Clone, Debug)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    pub(crate) text: String,
    pub(crate) line: usize,
}

impl Token {
    /// True if the token is this word or mark; a literal or lifetime never matches.
    pub(crate) fn is(&self, text: &str) -> bool {
        matches!(self.kind, Kind::Word | Kind::Mark) && self.text == text
    }
}

/// Comment, with its slashes or stars.
#[derive(Clone, Debug)]
pub(crate) struct Comment {
    pub(crate) text: String,
    pub(crate) line: usize,
    pub(crate) last_line: usize,
}

/// Splits `text` into tokens and comments, each in order.
pub(crate) fn split(text: &str) -> (Vec<Token>, Vec<Comment>) {
    let mut lexer = Lexer { text, at: 0, line: 1, tokens: Vec::new(), comments: Vec::new() };
    while lexer.step() {}
    (lexer.tokens, lexer.comments)
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
    line: usize,
    tokens: Vec<Token>,
    comments: Vec<Comment>,
}

impl<'a> Lexer<'a> {
    /// Consumes one token, one comment or one blank. Returns false at the end of the text.
    fn step(&mut self) -> bool {
        let rest = &self.text[self.at..];
        let Some(first) = rest.chars().next() else { return false };
        if first.is_whitespace() {
            self.advance(first.len_utf8());
        } else if rest.starts_with("//") {
            self.comment(rest.find('\n').unwrap_or(rest.len()));
        } else if rest.starts_with("/*") {
            self.comment(block_comment_len(rest));
        } else if let Some(len) = raw_string_len(rest).or_else(|| quoted_len(rest)) {
            self.token(Kind::Literal, len);
        } else if first == '\'' {
            self.token(Kind::Lifetime, 1 + word_len(&rest[1..]));
        } else if first.is_ascii_digit() {
            self.token(Kind::Literal, number_len(rest));
        } else if is_word_char(first) {
            let prefix = if rest.starts_with("r#") { 2 } else { 0 };
            self.token(Kind::Word, prefix + word_len(&rest[prefix..]));
        } else {
            let len = if rest.starts_with("::") { 2 } else { first.len_utf8() };
            self.token(Kind::Mark, len);
        }
        true
    }

    fn token(&mut self, kind: Kind, len: usize) {
        let line = self.line;
        let text = self.advance(len).to_owned();
        self.tokens.push(Token { kind, text, line });
    }

    fn comment(&mut self, len: usize) {
        let line = self.line;
        let text = self.advance(len).to_owned();
        self.comments.push(Comment { text, line, last_line: self.line });
    }

    fn advance(&mut self, len: usize) -> &'a str {
        let piece = &self.text[self.at..self.at + len];
        self.line += piece.matches('\n').count();
        self.at += len;
        piece
    }
}

fn is_word_char(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn word_len(text: &str) -> usize {
    text.find(|c| !is_word_char(c)).unwrap_or(text.len())
}

/// Length of a number: all of `1_000u64` and `1.5e3`, but only the `0` of `0..10` and of
/// `pair.0.add()`.
fn number_len(text: &str) -> usize {
    let whole = word_len(text);
    let fraction = text[whole..].strip_prefix('.').map_or(0, |rest| {
        if rest.starts_with(|c: char| c.is_ascii_digit()) { word_len(rest) } else { 0 }
    });
    if fraction == 0 { whole } else { whole + 1 + fraction }
}

fn block_comment_len(text: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < text.len() {
        let rest = &text.as_bytes()[at..];
        if rest.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    text.len()
}

/// Length of `r"..."`, `br#"..."#` and `cr"..."`; `None` for any other text.
fn raw_string_len(text: &str) -> Option<usize> {
    let after = ["br", "cr", "r"].iter().find_map(|prefix| text.strip_prefix(prefix))?;
    let hashes = after.len() - after.trim_start_matches('#').len();
    let body = after[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let len = body.find(&end).map_or(body.len(), |found| found + end.len());
    Some(text.len() - body.len() + len)
}

/// Length of `"..."`, `b"..."`, `c"..."`, `'x'` and `b'x'`; `None` for any other text, including a
/// lifetime.
fn quoted_len(text: &str) -> Option<usize> {
    let bare = ["b", "c"].iter().find_map(|prefix| text.strip_prefix(prefix)).unwrap_or(text);
    let quote = bare.chars().next().filter(|&c| c == '"' || c == '\'')?;
    let body = &bare[1..];
    if quote == '\'' && !body.starts_with('\\') {
        // A character literal ends after one character; otherwise the text is a lifetime.
        let width = body.chars().next()?.len_utf8();
        return body[width..].starts_with('\'').then(|| text.len() - body.len() + width + 1);
    }
    let mut escaped = false;
    for (at, c) in body.char_indices() {
        if !escaped && c == quote {
            return Some(text.len() - body.len() + at + 1);
        }
        escaped = !escaped && c == '\\';
    }
    Some(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        split(text).0.into_iter().map(|token| token.text).collect()
    }

    #[test]
    fn strings_and_comments_hide_their_words() {
        let text = "a /* unsafe /* deep */ x */ \"unsafe \\\" b\" r#\"unsafe \" \"# c // unsafe\nd";
        let (tokens, comments) = split(text);
        let bare: Vec<_> = tokens.iter().filter(|t| t.kind == Kind::Word).collect();
        assert_eq!(bare.iter().map(|t| t.text.as_str()).collect::<Vec<_>>(), ["a", "c", "d"]);
        assert_eq!(comments.len(), 2);
        assert!(!tokens.iter().any(|t| t.is("unsafe")));
    }

    #[test]
    fn characters_differ_from_lifetimes() {
        assert_eq!(
            words("'a' 'a b'\\'' '\"' &'static x"),
            ["'a'", "'a", "b'\\''", "'\"'", "&", "'static", "x"]
        );
    }

    #[test]
    fn numbers_leave_ranges_and_fields_alone() {
        assert_eq!(
            words("0..10 1.5e3 a.0.add"),
            ["0", ".", ".", "10", "1.5e3", "a", ".", "0", ".", "add"]
        );
    }

    #[test]
    fn lines_are_counted_through_everything() {
        let (tokens, comments) = split("\"a\nb\" /* c\n*/ d\n::e");
        assert_eq!((tokens[1].text.as_str(), tokens[1].line), ("d", 3));
        assert_eq!((tokens[2].text.as_str(), tokens[2].line), ("::", 4));
        assert_eq!((comments[0].line, comments[0].last_line), (2, 3));
    }

    #[test]
    fn raw_words_are_words() {
        assert_eq!(words("r#fn b r"), ["r#fn", "b", "r"]);
    }
}
