//! Declarations of options: names, types, ranges, defaults and help.

use super::value::Value;

/// Declaration of an option.
#[derive(Clone, Copy, Debug)]
pub struct OptionDecl {
    /// Name of the option, before the `=`.
    pub name: &'static str,
    /// Type and range of the option's value.
    pub value: ValueType,
    /// Default value as written in an address; `None`: an absent option has no value.
    pub default: Option<&'static str>,
    /// Meaning of the option, without a full stop.
    pub help: &'static str,
    /// True if the option may be given only once. Otherwise the last value counts, or all values
    /// for a list.
    pub once: bool,
}

/// Declares an option without a default that may be repeated.
pub(super) const fn option(name: &'static str, value: ValueType, help: &'static str) -> OptionDecl {
    OptionDecl { name, value, default: None, help, once: false }
}

impl OptionDecl {
    /// Returns this declaration with a default.
    pub(super) const fn or(self, default: &'static str) -> Self {
        Self { default: Some(default), ..self }
    }

    /// Returns this declaration with another meaning.
    pub(super) const fn means(self, help: &'static str) -> Self {
        Self { help, ..self }
    }

    /// Returns this declaration for an option that may be given only once.
    pub(super) const fn once(self) -> Self {
        Self { once: true, ..self }
    }

    /// True if `option` has this name, and is written with or without a value as the type allows.
    pub(super) fn matches(&self, option: &str) -> bool {
        let (name, value) = option.split_once('=').map_or((option, None), |(n, v)| (n, Some(v)));
        name == self.name && self.value.fits(value)
    }

    /// Notation of the option for documents, such as `queues=N`.
    pub fn syntax(&self) -> String {
        match self.value.syntax() {
            Some(value) if self.value.fits(None) => format!("{}[={value}]", self.name),
            Some(value) => format!("{}={value}", self.name),
            None => self.name.to_owned(),
        }
    }

    /// Example of the option with an allowed value; for words, a word other than the default.
    pub fn example(&self) -> String {
        let other = |words: &[&str]| {
            let mut words = words.iter().copied();
            words.find(|word| self.default != Some(word)).unwrap_or_default().to_owned()
        };
        let value = match self.value {
            ValueType::Flag => return self.name.to_owned(),
            ValueType::Switch { .. } => other(&["on", "off"]),
            ValueType::Choice(words) => other(words),
            ValueType::Number(min, _) | ValueType::PowerOfTwo(min, _) => min.to_string(),
            ValueType::Size(min, _) => min.to_string(),
            ValueType::Custom(custom) => custom.example.to_owned(),
        };
        format!("{}={value}", self.name)
    }
}

/// Type and range of an option's value.
#[derive(Clone, Copy, Debug)]
pub enum ValueType {
    /// Flag without a value.
    Flag,
    /// Word `on` or `off`.
    Switch {
        /// True if the option without a value means `on`.
        bare: bool,
    },
    /// Word from a list.
    Choice(&'static [&'static str]),
    /// Number within an inclusive range.
    Number(u32, u32),
    /// Power of two within an inclusive range.
    PowerOfTwo(u32, u32),
    /// Size in bytes within an inclusive range.
    Size(u32, u32),
    /// Value with a custom notation.
    Custom(&'static Custom),
}

/// Custom notation of a value.
#[derive(Debug)]
pub struct Custom {
    /// Placeholder for the value in documents.
    pub syntax: &'static str,
    /// Description of the allowed values, for messages and documents.
    pub allowed: &'static str,
    /// Example of an allowed value.
    pub example: &'static str,
    /// Parser of the value; returns `None` for a value that is not allowed.
    pub(super) read: fn(&str) -> Option<Value>,
}

impl ValueType {
    /// Placeholder for the value in documents; `None` for a flag.
    fn syntax(&self) -> Option<String> {
        Some(match self {
            Self::Flag => return None,
            Self::Switch { .. } => "on|off".to_owned(),
            Self::Choice(words) => words.join("|"),
            Self::Number(..) | Self::PowerOfTwo(..) => "N".to_owned(),
            Self::Size(..) => "SIZE".to_owned(),
            Self::Custom(custom) => custom.syntax.to_owned(),
        })
    }

    /// Description of the allowed values, for messages and documents; empty for a flag.
    pub fn allowed(&self) -> String {
        match self {
            Self::Flag => String::new(),
            Self::Switch { .. } => "on or off".to_owned(),
            Self::Choice(words) => match words.split_last() {
                Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
                None => String::new(),
            },
            Self::Number(min, max) => format!("a number from {min} to {max}"),
            Self::PowerOfTwo(min, max) => format!("a power of two from {min} to {max}"),
            Self::Size(min, max) => format!("a size from {} to {}", size(*min), size(*max)),
            Self::Custom(custom) => format!("{}, like {}", custom.allowed, custom.example),
        }
    }

    /// True if an option of this type may be written with this value, or without a value (`None`).
    /// The value's content is not checked.
    pub(super) fn fits(&self, value: Option<&str>) -> bool {
        match self {
            Self::Flag => value.is_none(),
            Self::Switch { bare } => *bare || value.is_some(),
            _ => value.is_some(),
        }
    }

    /// Parses a value; `None` means a flag or a switch without a value. The error describes the
    /// allowed values.
    pub(super) fn read(&self, text: Option<&str>) -> Result<Value, String> {
        let Some(text) = text else { return Ok(Value::Switch(true)) };
        let number = |text: &str| text.parse::<u32>().ok().map(u64::from);
        let within =
            |min, max| move |number: &u64| (u64::from(min)..=u64::from(max)).contains(number);
        let value = match *self {
            Self::Flag => None,
            Self::Switch { .. } => match text {
                "on" => Some(Value::Switch(true)),
                "off" => Some(Value::Switch(false)),
                _ => None,
            },
            Self::Choice(words) => {
                let index = words.iter().position(|word| *word == text);
                index.map(|index| Value::Number(index as u64))
            }
            Self::Number(min, max) => number(text).filter(within(min, max)).map(Value::Number),
            Self::PowerOfTwo(min, max) => {
                let good = number(text).filter(within(min, max));
                good.filter(|number| number.is_power_of_two()).map(Value::Number)
            }
            Self::Size(min, max) => parse_size(text).filter(within(min, max)).map(Value::Number),
            Self::Custom(custom) => (custom.read)(text),
        };
        value.ok_or_else(|| self.allowed())
    }
}

/// Parses a size in bytes: a number with an optional suffix K, M, G or T (powers of 1024). Returns
/// `None` if the text is no size or exceeds 64 bits.
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

/// Formats a size with the largest unit that divides it.
fn size(bytes: u32) -> String {
    match bytes {
        _ if bytes.trailing_zeros() >= 30 => format!("{}G", bytes >> 30),
        _ if bytes.trailing_zeros() >= 20 => format!("{}M", bytes >> 20),
        _ if bytes.trailing_zeros() >= 10 => format!("{}K", bytes >> 10),
        _ => bytes.to_string(),
    }
}
