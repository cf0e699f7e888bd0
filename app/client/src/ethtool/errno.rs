//! Error texts of the C library.

use mqnet_control_api::Code;

/// Text that `strerror` returns for the errno of `code`.
pub(crate) fn text(code: Code) -> &'static str {
    match code {
        Code::NoDevice => "No such device",
        Code::NoEntry => "No such file or directory",
        Code::Exists => "File exists",
        Code::Invalid => "Invalid argument",
        Code::Range => "Numerical result out of range",
        Code::NotSupported => "Operation not supported",
        Code::Busy | Code::Changing => "Device or resource busy",
        Code::Down => "Network is down",
        Code::TimedOut => "Connection timed out",
        Code::Permission => "Operation not permitted",
        Code::Failed => "Input/output error",
    }
}
