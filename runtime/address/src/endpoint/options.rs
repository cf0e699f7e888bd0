//! Values of the options of one address: `key=value,flag,key=value`.

use mqnet_netdev::InterfaceAddress;

use super::declaration::KindDecl;
use super::egress;

/// Value of an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Switch(bool),
    /// Number, size, or index among the allowed words.
    Number(u64),
    Text(String),
    Mac([u8; 6]),
    Address(InterfaceAddress),
    List(Vec<Value>),
}

/// Type that a kind's constructor reads from a value.
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

/// Checked values of the options of one address, defaults included.
pub(super) struct Options {
    kind: &'static KindDecl,
    values: Vec<(&'static str, Value)>,
}

impl Options {
    /// Parses the options of an address. Each must be declared by the kind, or for all kinds.
    pub(super) fn parse(kind: &'static KindDecl, text: &str) -> Result<Self, String> {
        let mut options = Self { kind, values: Vec::new() };
        let is_common = |option: &&str| egress::OPTIONS.iter().any(|decl| decl.matches(option));
        let (common, mut own): (Vec<&str>, Vec<&str>) = text.split(',').partition(is_common);
        // A trailing comma is allowed, and so is an empty list.
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

    /// All values of an option.
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

    /// Value of an option without a default; the last one counts.
    pub(super) fn optional<T: FromValue>(&self, name: &str) -> Option<T> {
        self.all(name).pop()
    }

    /// Value of a flag, or of an option with a default.
    pub(super) fn value<T: FromValue + Default>(&self, name: &str) -> T {
        self.optional(name).unwrap_or_default()
    }

    /// Element of `values` at the index of the given word among the allowed ones.
    pub(super) fn pick<T: Copy, const N: usize>(&self, name: &str, values: [T; N]) -> Option<T> {
        self.optional(name).and_then(|index: usize| values.get(index).copied())
    }
}
