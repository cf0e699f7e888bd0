//! Option values of an address: `key=value,flag,key=value`.

use mqnet_netdev::InterfaceAddress;

use super::declaration::KindDecl;
use super::egress;

/// Value of an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Switch(bool),
    /// Number, size, or index in the list of allowed words.
    Number(u64),
    Text(String),
    Mac([u8; 6]),
    Address(InterfaceAddress),
    List(Vec<Value>),
}

/// Conversion of an option's value to the type that a kind's constructor needs.
pub(super) trait FromValue: Sized {
    fn from_value(value: &Value) -> Option<Self>;
}

macro_rules! from_value {
    ($($to:ty: $pattern:pat => $result:expr;)*) => {
        $(impl FromValue for $to {
            fn from_value(value: &Value) -> Option<Self> {
                match value {
                    $pattern => $result,
                    _ => None,
                }
            }
        })*
    };
}

from_value! {
    bool: Value::Switch(on) => Some(*on);
    u8: Value::Number(n) => (*n).try_into().ok();
    u16: Value::Number(n) => (*n).try_into().ok();
    u32: Value::Number(n) => (*n).try_into().ok();
    i32: Value::Number(n) => (*n).try_into().ok();
    usize: Value::Number(n) => (*n).try_into().ok();
    String: Value::Text(text) => Some(text.clone());
    [u8; 6]: Value::Mac(mac) => Some(*mac);
    InterfaceAddress: Value::Address(address) => Some(*address);
}

/// Parsed option values of one address, including defaults.
pub(super) struct Options {
    kind: &'static KindDecl,
    values: Vec<(&'static str, Value)>,
}

impl Options {
    /// Parses the options of an address. Returns an error for an option that is not declared, for
    /// an invalid value, and for an option repeated against its declaration.
    pub(super) fn parse(kind: &'static KindDecl, text: &str) -> Result<Self, String> {
        let mut options = Self { kind, values: Vec::new() };
        let is_common = |option: &&str| egress::OPTIONS.iter().any(|decl| decl.matches(option));
        let (common, mut own): (Vec<&str>, Vec<&str>) = text.split(',').partition(is_common);
        // An empty list and a trailing comma are allowed.
        own.pop_if(|last| last.is_empty());
        for option in common.into_iter().chain(own) {
            let Some(decl) = kind.options().find(|decl| decl.matches(option)) else {
                let allowed = kind.allowed();
                return Err(format!("unknown option '{option}'; allowed: {allowed}"));
            };
            let value = option.split_once('=').map(|(_, value)| value);
            if decl.once && options.has(decl.name) {
                return Err(format!("{}= is there twice", decl.name));
            }
            match decl.value.read(value).map_err(|why| format!("{option}: must be {why}"))? {
                Value::List(all) => options.values.extend(all.into_iter().map(|v| (decl.name, v))),
                value => options.values.push((decl.name, value)),
            }
        }
        for decl in kind.options() {
            if let Some(default) = decl.default.filter(|_| !options.has(decl.name)) {
                options.values.push((decl.name, decl.value.read(Some(default))?));
            }
        }
        Ok(options)
    }

    fn has(&self, name: &str) -> bool {
        self.values.iter().any(|(other, _)| *other == name)
    }

    /// Returns all values of an option.
    pub(super) fn all<T: FromValue>(&self, name: &str) -> Vec<T> {
        debug_assert!(self.kind.option(name).is_some(), "undeclared option: {name}");
        let given = self.values.iter().filter(|(other, _)| *other == name);
        let read = |(_, value): &(&str, Value)| {
            let read = T::from_value(value);
            debug_assert!(read.is_some(), "{name}: declared with another type: {value:?}");
            read
        };
        given.filter_map(read).collect()
    }

    /// Returns the last value of an option; `None` if it is absent and has no default.
    pub(super) fn optional<T: FromValue>(&self, name: &str) -> Option<T> {
        self.all(name).pop()
    }

    /// Returns the value of an option; for an absent option without a default, the default of the
    /// type.
    pub(super) fn value<T: FromValue + Default>(&self, name: &str) -> T {
        self.optional(name).unwrap_or_default()
    }

    /// Returns the element of `values` that corresponds to the given word; `None` if the option is
    /// absent.
    pub(super) fn pick<T: Copy, const N: usize>(&self, name: &str, values: [T; N]) -> Option<T> {
        self.optional(name).and_then(|index: usize| values.get(index).copied())
    }
}
