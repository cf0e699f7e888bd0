//! Text form of keys and values.

/// Formats each byte as two hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Parses a number into `size` little-endian bytes, or bytes like `0a:00`, of any length. The error
/// begins with `what`.
pub(super) fn bytes(what: &str, text: &str, size: u32) -> Result<Vec<u8>, String> {
    if text.contains(':') {
        let byte = |part: &str| u8::from_str_radix(part, 16).ok().filter(|_| part.len() <= 2);
        let all: Option<Vec<u8>> = text.split(':').map(byte).collect();
        return all.ok_or_else(|| format!("{what}: '{text}' is not bytes like 0a:00:00:01"));
    }
    let number = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    let number = number
        .map_err(|_| format!("{what}: '{text}' is neither a number nor bytes like 0a:00:00:01"))?;
    let eight = number.to_le_bytes();
    let (low, high) = eight.split_at((size as usize).min(8));
    if high.iter().any(|&b| b != 0) {
        return Err(format!("{what}: {text} does not fit into {size} bytes"));
    }
    let mut bytes = low.to_vec();
    bytes.resize(size as usize, 0);
    Ok(bytes)
}

/// Formats hex digits of 1, 2, 4 or 8 bytes as a little-endian number, any other length as bytes
/// with colons.
pub(super) fn readable(hex: &str) -> String {
    let pairs: Vec<&str> = (0..hex.len() / 2).filter_map(|i| hex.get(2 * i..2 * i + 2)).collect();
    if matches!(pairs.len(), 1 | 2 | 4 | 8) {
        let number: String = pairs.iter().rev().copied().collect();
        if let Ok(number) = u64::from_str_radix(&number, 16) {
            return number.to_string();
        }
    }
    pairs.join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: a number gets the size of the map's values, bytes are unchanged, and other input is
    // rejected with the name of the field.
    #[test]
    fn words_become_bytes() {
        assert_eq!(bytes("key", "258", 4).unwrap(), [2, 1, 0, 0]);
        assert_eq!(bytes("key", "0xff", 1).unwrap(), [255]);
        assert_eq!(bytes("key", "1", 12).unwrap().len(), 12);
        assert_eq!(bytes("key", "a:0:00:01", 4).unwrap(), [10, 0, 0, 1]);
        for text in ["256", "x", "-1", "", "1:", "100:1", "1.5"] {
            assert!(bytes("value", text, 1).unwrap_err().starts_with("value: "), "{text}");
        }
    }

    // Goal: 4 bytes are formatted as a little-endian number, 3 bytes with colons, no bytes as empty
    // text.
    #[test]
    fn bytes_become_words() {
        assert_eq!(readable("02010000"), "258");
        assert_eq!(readable("0a0000"), "0a:00:00");
        assert_eq!(readable(""), "");
    }
}
