//! Values of options.

use mqnet_netdev::InterfaceAddress;

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
