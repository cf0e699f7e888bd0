//! `key=value,flag,key=value`.

/// An iterator over options that remembers where it is, for messages.
pub(super) struct Options<'a> {
    rest: &'a str,
    last: &'a str,
}

impl<'a> Options<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { rest: text, last: "" }
    }

    /// The next option and its value, if it has one.
    pub(super) fn next(&mut self) -> Option<(&'a str, Option<&'a str>)> {
        if self.rest.is_empty() {
            return None;
        }
        (self.last, self.rest) = self.rest.split_once(',').unwrap_or((self.rest, ""));
        Some(match self.last.split_once('=') {
            Some((key, value)) => (key, Some(value)),
            None => (self.last, None),
        })
    }

    /// What to say about the option that `next` returned last.
    pub(super) fn unknown(&self, allowed: &str) -> String {
        format!("unknown option '{}'; allowed: {allowed}", self.last)
    }

    /// For kinds without options.
    pub(super) fn finish(mut self, allowed: &str) -> Result<(), String> {
        match self.next() {
            None => Ok(()),
            Some(_) => Err(self.unknown(allowed)),
        }
    }
}

/// A size in bytes: a number with an optional K, M, G or T (powers of 1024).
pub fn parse_size(text: &str) -> Option<u64> {
    let (digits, shift) = match text.as_bytes().last()? {
        b'K' | b'k' => (&text[..text.len() - 1], 10),
        b'M' | b'm' => (&text[..text.len() - 1], 20),
        b'G' | b'g' => (&text[..text.len() - 1], 30),
        b'T' | b't' => (&text[..text.len() - 1], 40),
        _ => (text, 0),
    };
    let number: u64 = digits.parse().ok()?;
    number.checked_shl(shift).filter(|n| n >> shift == number)
}

/// A switch.
pub(super) fn on_off(key: &str, value: &str) -> Result<bool, String> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(format!("{key}={value}: must be on or off")),
    }
}

/// A unicast Ethernet address.
pub(super) fn parse_mac(text: &str) -> Result<[u8; 6], String> {
    let mut mac = [0; 6];
    let mut parts = text.split(':');
    for byte in &mut mac {
        let part = parts.next().filter(|p| p.len() == 2);
        *byte = part
            .and_then(|p| u8::from_str_radix(p, 16).ok())
            .ok_or(format!("mac={text}: must be like 02:00:00:00:00:01"))?;
    }
    if parts.next().is_some() {
        return Err(format!("mac={text}: must be like 02:00:00:00:00:01"));
    }
    if mac[0] & 1 != 0 || mac == [0; 6] {
        return Err(format!("mac={text}: is not a unicast address"));
    }
    Ok(mac)
}
