//! Declarations of endpoint kinds and of their options, used by the parser, help, completion and
//! documents.

use super::options::{Options, Value};
use super::{Endpoint, egress};

/// Declaration of an endpoint kind.
#[derive(Debug)]
pub struct KindDecl {
    /// Start of its addresses, up to the target.
    pub prefix: &'static str,
    /// Placeholder of the target.
    pub target: &'static str,
    /// Purpose, without a full stop.
    pub summary: &'static str,
    /// Further sentences, or nothing.
    pub notes: &'static str,
    /// Page of the book with details, in the folder of `endpoints.md`, or nothing.
    pub document: &'static str,
    /// Address of the kind, with options.
    pub example: &'static str,
    /// Name of the driver, as `ethtool -i` prints it.
    pub driver: &'static str,
    /// Hint on setting the rings of a netdev `NAME` if `ethtool -G` cannot set them.
    pub rings: &'static str,
    /// True if names of its netdevs are valid in one network namespace only.
    pub is_interface: bool,
    /// True if a target is a path, which may be relative.
    pub(super) is_path: fn(&str) -> bool,
    /// Options in groups, without those of all kinds.
    pub(super) options: &'static [&'static [OptionDecl]],
    /// Constructor from the target and the options.
    pub(super) parse: fn(&str, &Options) -> Result<Endpoint, String>,
}

impl KindDecl {
    /// Name of the kind, in front of the colon.
    pub fn name(&self) -> &'static str {
        self.prefix.split(':').next().unwrap_or_default()
    }

    /// Options of the kind alone.
    pub fn own_options(&self) -> impl Iterator<Item = &'static OptionDecl> {
        self.options.iter().copied().flatten()
    }

    /// Options of the kind, and those of all kinds.
    pub fn options(&self) -> impl Iterator<Item = &'static OptionDecl> {
        self.own_options().chain(egress::OPTIONS)
    }

    /// Option with this name.
    pub fn option(&self, name: &str) -> Option<&'static OptionDecl> {
        self.options().find(|option| option.name == name)
    }

    /// Names of the options for a message, each with `=` if it has a value.
    pub(super) fn allowed(&self) -> String {
        let names = self.options().map(|option| match option.value {
            ValueType::Flag => option.name.to_owned(),
            _ => format!("{}=", option.name),
        });
        names.collect::<Vec<_>>().join(" ")
    }
}

/// Declaration of an option.
#[derive(Clone, Copy, Debug)]
pub struct OptionDecl {
    /// Name, in front of the `=`.
    pub name: &'static str,
    /// Type and range of the value.
    pub value: ValueType,
    /// Value that an absent option has, as it is written.
    pub default: Option<&'static str>,
    /// Meaning, without a full stop.
    pub help: &'static str,
    /// True if it may be given once only. Otherwise the last value counts, or all of a list.
    pub once: bool,
}

/// Declares an option without a default.
pub(super) const fn option(name: &'static str, value: ValueType, help: &'static str) -> OptionDecl {
    OptionDecl { name, value, default: None, help, once: false }
}

impl OptionDecl {
    /// The same option with a default.
    pub(super) const fn or(self, default: &'static str) -> Self {
        Self { default: Some(default), ..self }
    }

    /// The same option with another meaning.
    pub(super) const fn means(self, help: &'static str) -> Self {
        Self { help, ..self }
    }

    /// The same option, rejected if it is given twice.
    pub(super) const fn once(self) -> Self {
        Self { once: true, ..self }
    }

    /// True for this option, as it is written in an address.
    pub(super) fn matches(&self, option: &str) -> bool {
        let (name, value) = option.split_once('=').map_or((option, None), |(n, v)| (n, Some(v)));
        name == self.name && self.value.fits(value)
    }

    /// Notation for documents: `queues=N`.
    pub fn syntax(&self) -> String {
        match self.value.syntax() {
            Some(value) if self.value.fits(None) => format!("{}[={value}]", self.name),
            Some(value) => format!("{}={value}", self.name),
            None => self.name.to_owned(),
        }
    }

    /// The option with an allowed value other than its default.
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

/// Type and range of a value.
#[derive(Clone, Copy, Debug)]
pub enum ValueType {
    /// No value: the name alone sets it.
    Flag,
    /// `on` or `off`.
    Switch {
        /// True if the name alone means `on`.
        bare: bool,
    },
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A number from the first to the second.
    Number(u32, u32),
    /// A power of two from the first to the second.
    PowerOfTwo(u32, u32),
    /// A size in bytes from the first to the second.
    Size(u32, u32),
    /// A value with a notation of its own.
    Custom(&'static Custom),
}

/// Values with a notation of their own.
#[derive(Debug)]
pub struct Custom {
    /// Placeholder for documents.
    pub syntax: &'static str,
    /// Description of the allowed values, for messages and documents.
    pub allowed: &'static str,
    /// An allowed value.
    pub example: &'static str,
    /// Parser; `None` for a value that is not allowed.
    pub(super) read: fn(&str) -> Option<Value>,
}

impl ValueType {
    /// Placeholder of the value; `None` for flags.
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

    /// Description of the allowed values, for messages and documents; empty for flags.
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

    /// True if an option of this type may have this value, or no value.
    pub(super) fn fits(&self, value: Option<&str>) -> bool {
        match self {
            Self::Flag => value.is_none(),
            Self::Switch { bare } => *bare || value.is_some(),
            _ => value.is_some(),
        }
    }

    /// Parses a value; the error describes the allowed ones.
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

/// Notation of a size in its largest unit that divides it.
fn size(bytes: u32) -> String {
    match bytes {
        _ if bytes.trailing_zeros() >= 30 => format!("{}G", bytes >> 30),
        _ if bytes.trailing_zeros() >= 20 => format!("{}M", bytes >> 20),
        _ if bytes.trailing_zeros() >= 10 => format!("{}K", bytes >> 10),
        _ => bytes.to_string(),
    }
}
