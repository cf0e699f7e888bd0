//! QEMU monitor protocol (QMP).

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::Result;

/// Time limit of a response, for a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Connection to the monitor.
pub struct Monitor {
    lines: BufReader<UnixStream>,
}

impl Monitor {
    /// Connects to a QEMU with `-qmp unix:PATH,server=on,wait=off`.
    pub fn connect(path: &Path) -> Result<Self> {
        let stream = UnixStream::connect(path).map_err(|e| format!("{}: {e}", path.display()))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut monitor = Self { lines: BufReader::new(stream) };
        monitor.line()?;
        monitor.ask(&serde_json::json!({"execute": "qmp_capabilities"}))?;
        Ok(monitor)
    }

    /// Runs a command; returns its result.
    pub fn ask(&mut self, command: &Value) -> Result<Value> {
        let stream = self.lines.get_mut();
        stream.write_all(format!("{command}\n").as_bytes())?;
        loop {
            let mut answer = self.line()?;
            if let Some(error) = answer.get("error") {
                return Err(format!("{command}: {error}").into());
            }
            // Events may precede the response.
            if let Some(value) = answer.get_mut("return") {
                return Ok(value.take());
            }
        }
    }

    fn line(&mut self) -> Result<Value> {
        let mut line = String::new();
        if self.lines.read_line(&mut line)? == 0 {
            return Err("QEMU has closed its monitor".into());
        }
        Ok(serde_json::from_str(&line)?)
    }
}
