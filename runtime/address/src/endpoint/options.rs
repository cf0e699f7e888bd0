//! Option values of an address: `key=value,flag,key=value`.

use super::option::{OptionDecl, ValueType};
use super::value::{FromValue, Value};

/// Parsed option values of one address, including defaults.
pub(super) struct Options {
    /// Declared options: those of the kind, then those of all kinds.
    declared: Vec<&'static OptionDecl>,
    values: Vec<(&'static str, Value)>,
}

impl Options {
    /// Parses options that are declared in `own`, or in `common` for all kinds.
    pub(super) fn parse(
        own: Vec<&'static OptionDecl>,
        common: &'static [OptionDecl],
        text: &str,
    ) -> Result<Self, String> {
        let declared: Vec<_> = own.into_iter().chain(common).collect();
        let mut options = Self { declared: declared.clone(), values: Vec::new() };
        let is_common = |option: &&str| common.iter().any(|decl| decl.matches(option));
        let (common, mut own): (Vec<&str>, Vec<&str>) = text.split(',').partition(is_common);
        // An empty list and a trailing comma are allowed.
        own.pop_if(|last| last.is_empty());
        for option in common.into_iter().chain(own) {
            let Some(decl) = declared.iter().find(|decl| decl.matches(option)) else {
                let allowed = options.allowed();
                return Err(format!("unknown option '{option}'; allowed: {allowed}"));
            };
            let value = option.split_once('=').map(|(_, value)| value);
            if decl.once && options.has(decl.name) {
                return Err(format!("{}= is given twice", decl.name));
            }
            match decl.value.read(value).map_err(|why| format!("{option}: must be {why}"))? {
                Value::List(all) => options.values.extend(all.into_iter().map(|v| (decl.name, v))),
                value => options.values.push((decl.name, value)),
            }
        }
        for decl in declared {
            if let Some(default) = decl.default.filter(|_| !options.has(decl.name)) {
                options.values.push((decl.name, decl.value.read(Some(default))?));
            }
        }
        Ok(options)
    }

    /// Option names for a message, each with `=` unless the option is a flag.
    fn allowed(&self) -> String {
        let names = self.declared.iter().map(|option| match option.value {
            ValueType::Flag => option.name.to_owned(),
            _ => format!("{}=", option.name),
        });
        names.collect::<Vec<_>>().join(" ")
    }

    fn has(&self, name: &str) -> bool {
        self.values.iter().any(|(other, _)| *other == name)
    }

    /// Returns all values of an option.
    pub(super) fn all<T: FromValue>(&self, name: &str) -> Vec<T> {
        debug_assert!(
            self.declared.iter().any(|option| option.name == name),
            "undeclared option: {name}"
        );
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
