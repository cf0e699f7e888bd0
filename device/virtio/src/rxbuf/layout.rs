//! Parts of pages, or whole ones: who decides, and why.

use std::fmt;

/// What a user wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wish {
    /// Several buffers share a page where they fit.
    #[default]
    Frag,
    /// Every buffer has a page.
    Full,
    /// By what is measured.
    Auto,
}

impl Wish {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Frag => "frag",
            Self::Full => "full",
            Self::Auto => "auto",
        }
    }

    /// From the two switches by which it is set; `full` wins.
    pub const fn of_flags(full: bool, auto: bool) -> Self {
        match (full, auto) {
            (true, _) => Self::Full,
            (false, true) => Self::Auto,
            (false, false) => Self::Frag,
        }
    }
}

/// What a queue has measured since it was asked last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// Buffers that came back, and how many of them from another thread.
    pub freed: u64,
    /// See `freed`.
    pub foreign: u64,
    /// Pages in use, and pages that there are.
    pub outstanding: u32,
    /// See `outstanding`.
    pub pages: u32,
    /// Nanoseconds of a refill for a buffer, with parts of pages and with whole ones; 0: not
    /// known.
    pub refill_ns: [u32; 2],
    /// It is not long ago that whole pages were found to be dearer.
    pub resting: bool,
}

/// Why a queue has the layout that it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A buffer of so many bytes leaves no room for a second one in a page of so many.
    Jumbo {
        /// Bytes of a buffer.
        size: u32,
        /// Bytes of a page.
        page: u32,
    },
    /// An XDP program wants a page for each frame.
    Xdp,
    /// It was asked for.
    Asked,
    /// So many of a hundred buffers come back from other threads.
    Foreign(u32),
    /// So many of a hundred pages are in use.
    Memory(u32),
    /// Whole pages took so many nanoseconds for a buffer, parts of pages so many.
    Dear {
        /// With whole pages.
        full: u32,
        /// With parts.
        frag: u32,
    },
    /// Whole pages were asked for, and there were not enough of them.
    RolledBack {
        /// Pages that there are.
        pages: u32,
    },
    /// Nothing speaks against several buffers in a page.
    Cheap,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Jumbo { size, page } => {
                write!(f, "forced: two buffers of {size} bytes do not fit a page of {page}")
            }
            Self::Xdp => f.write_str("forced: an XDP program has a page for each frame"),
            Self::Asked => f.write_str("asked for"),
            Self::Foreign(share) => {
                write!(f, "auto: {share} % of the buffers come back from other threads")
            }
            Self::Memory(share) => write!(f, "auto: {share} % of the pages are in use"),
            Self::Dear { full, frag } => {
                write!(f, "auto: whole pages take {full} ns for a buffer, parts of pages {frag}")
            }
            Self::RolledBack { pages } => write!(
                f,
                "rolled back: {pages} pages are too few for a ring of whole ones and what is in use"
            ),
            Self::Cheap => f.write_str("auto: buffers come back where they were taken"),
        }
    }
}

impl Cause {
    /// True when the user's wish has no say.
    pub const fn is_forced(self) -> bool {
        matches!(self, Self::Jumbo { .. } | Self::Xdp)
    }
}

/// How the buffers of a queue lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Each has a page of its own.
    pub full: bool,
    /// Why.
    pub cause: Cause,
}

/// Whole pages at more than this share of foreign returns, in percent; parts again below half of
/// it, so that a queue does not go back and forth.
const FOREIGN_HIGH: u32 = 50;
/// Parts of pages at more than this share of pages in use, in percent.
const MEMORY_HIGH: u32 = 75;
/// Parts of pages when whole ones take so much longer, in percent.
const DEAR: u64 = 120;
/// Buffers below which nothing is decided.
const ENOUGH: u64 = 1024;

fn percent(part: u64, of: u64) -> u32 {
    (part.saturating_mul(100) / of.max(1)).min(100) as u32
}

impl Layout {
    /// The layout of buffers of `size` bytes in pages of `page`. `now` is what the queue has.
    pub fn decide(
        wish: Wish,
        (size, page): (u32, u32),
        xdp: bool,
        measured: &Measured,
        now: Option<Self>,
    ) -> Self {
        let full = |cause| Self { full: true, cause };
        if xdp {
            return full(Cause::Xdp);
        }
        if size == 0 || page / size < 2 {
            return full(Cause::Jumbo { size, page });
        }
        match wish {
            Wish::Full => full(Cause::Asked),
            Wish::Frag => Self { full: false, cause: Cause::Asked },
            Wish::Auto => Self::measure(measured, now),
        }
    }

    fn measure(measured: &Measured, now: Option<Self>) -> Self {
        let &Measured { freed, foreign, outstanding, pages, refill_ns, resting } = measured;
        let is_full = now.is_some_and(|now| now.full && matches!(now.cause, Cause::Foreign(_)));
        let used = percent(outstanding.into(), pages.into());
        if is_full && used > MEMORY_HIGH {
            return Self { full: false, cause: Cause::Memory(used) };
        }
        let [frag, full] = refill_ns;
        if is_full && frag > 0 && u64::from(full) * 100 > u64::from(frag) * DEAR {
            return Self { full: false, cause: Cause::Dear { full, frag } };
        }
        if let Some(dear) = now.filter(|now| resting && matches!(now.cause, Cause::Dear { .. })) {
            return dear;
        }
        if freed < ENOUGH {
            let kept = now.filter(|now| is_full || !now.full);
            return kept.unwrap_or(Self { full: false, cause: Cause::Cheap });
        }
        let share = percent(foreign, freed);
        let bar = if is_full { FOREIGN_HIGH / 2 } else { FOREIGN_HIGH };
        if share > bar && used <= MEMORY_HIGH {
            return Self { full: true, cause: Cause::Foreign(share) };
        }
        Self { full: false, cause: Cause::Cheap }
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        if self.full { "full" } else { "frag" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(freed: u64, foreign: u64, outstanding: u32) -> Measured {
        Measured { freed, foreign, outstanding, pages: 100, ..Measured::default() }
    }

    fn auto(measured: Measured, now: Option<Layout>) -> Layout {
        Layout::decide(Wish::Auto, (1920, 4096), false, &measured, now)
    }

    // Goal: what is forced is forced whatever is wished for, and says why with its numbers.
    #[test]
    fn forced_layouts() {
        for wish in [Wish::Frag, Wish::Full, Wish::Auto] {
            let none = Measured::default();
            let jumbo = Layout::decide(wish, (2112, 4096), false, &none, None);
            assert!(jumbo.full);
            let text = "forced: two buffers of 2112 bytes do not fit a page of 4096";
            assert_eq!(jumbo.cause.to_string(), text);
            let xdp = Layout::decide(wish, (64, 4096), true, &none, None);
            assert_eq!(xdp, Layout { full: true, cause: Cause::Xdp });
        }
    }

    // Goal: the flag chooses where nothing is forced, and wins over auto.
    #[test]
    fn asked_layouts() {
        let of = |full, auto| {
            let none = Measured::default();
            Layout::decide(Wish::of_flags(full, auto), (2048, 4096), false, &none, None).full
        };
        assert_eq!([of(false, false), of(true, false), of(true, true)], [false, true, true]);
    }

    // Goal: auto goes to whole pages when most buffers come back from elsewhere, stays there until
    // far fewer do, and leaves them when memory is short.
    #[test]
    fn measured_layouts() {
        assert!(!auto(seen(100, 100, 0), None).full, "too little was seen");
        let full = auto(seen(2000, 1200, 10), None);
        assert_eq!(full, Layout { full: true, cause: Cause::Foreign(60) });
        assert!(auto(seen(2000, 600, 10), Some(full)).full, "between the two bars");
        assert!(!auto(seen(2000, 600, 10), None).full);
        assert_eq!(auto(seen(2000, 100, 10), Some(full)).cause, Cause::Cheap);
        assert_eq!(auto(seen(0, 0, 80), Some(full)).cause, Cause::Memory(80));
        assert_eq!(auto(seen(0, 0, 10), Some(full)), full, "nothing new");
    }

    // Goal: whole pages that turn out to be dearer are given up, and not tried again at once.
    #[test]
    fn dear_pages_are_given_up() {
        let measured = |refill_ns, resting| Measured { refill_ns, resting, ..seen(2000, 1200, 10) };
        let full = Layout { full: true, cause: Cause::Foreign(60) };
        assert!(auto(measured([20, 24], false), Some(full)).full, "not by enough");
        assert!(auto(measured([0, 24], false), Some(full)).full, "nothing to compare with");
        let dear = auto(measured([20, 25], false), Some(full));
        assert_eq!(dear, Layout { full: false, cause: Cause::Dear { full: 25, frag: 20 } });
        let text = "auto: whole pages take 25 ns for a buffer, parts of pages 20";
        assert_eq!(dear.cause.to_string(), text);
        assert_eq!(auto(measured([20, 25], true), Some(dear)), dear);
        assert!(auto(measured([20, 25], false), Some(dear)).full, "tried again");
    }
}
