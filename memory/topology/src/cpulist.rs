//! CPU lists in the kernel's format: `0-3,8,10-11`.

/// Error of a text that is not a CPU list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadList(pub String);

impl std::fmt::Display for BadList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "'{}' is not a CPU list (like 0-3,8)", self.0)
    }
}

impl std::error::Error for BadList {}

/// Maximum CPU number (the kernel's NR_CPUS on x86-64 is 8192).
pub(crate) const CPU_MAX: usize = 8191;

/// Parses a list. The result is ascending and without duplicates.
pub fn parse_cpu_list(text: &str) -> Result<Vec<usize>, BadList> {
    let bad = || BadList(text.to_owned());
    let number = |s: &str| s.trim().parse().ok().filter(|&n| n <= CPU_MAX).ok_or_else(bad);
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (from, to): (usize, usize) = (number(from)?, number(to)?);
        if from > to {
            return Err(bad());
        }
        cpus.extend(from..=to);
    }
    cpus.sort_unstable();
    cpus.dedup();
    Ok(cpus)
}

/// Formats a list in the shortest form.
pub fn format_cpu_list(cpus: &[usize]) -> String {
    let mut out = String::new();
    let mut i = 0;
    while i < cpus.len() {
        let mut end = i;
        while end + 1 < cpus.len() && cpus[end + 1] == cpus[end] + 1 {
            end += 1;
        }
        if !out.is_empty() {
            out.push(',');
        }
        out += &cpus[i].to_string();
        if end > i {
            out += &format!("-{}", cpus[end]);
        }
        i = end + 1;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: the kernel's examples parse and print back, and invalid text and huge ranges are
    // rejected.
    #[test]
    fn round_trip() {
        assert_eq!(parse_cpu_list("0-3,8,10-11"), Ok(vec![0, 1, 2, 3, 8, 10, 11]));
        assert_eq!(format_cpu_list(&[0, 1, 2, 3, 8, 10, 11]), "0-3,8,10-11");
        assert_eq!(parse_cpu_list("3,1,3"), Ok(vec![1, 3]));
        for bad in ["", "a", "3-1", "1-", "-1", "0-99999999", "1,,2"] {
            assert!(parse_cpu_list(bad).is_err(), "{bad}");
        }
    }
}
