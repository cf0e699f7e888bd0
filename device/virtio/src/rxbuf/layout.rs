//! Choice between fragments of pages and whole pages, with its reason.

use std::fmt;

/// Requested layout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RequestedLayout {
    /// Several buffers share a page if they fit.
    #[default]
    Frag,
    /// Every buffer has a page.
    Full,
    /// Measurements select the layout.
    Auto,
}

impl RequestedLayout {
    /// Name of the layout.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Frag => "frag",
            Self::Full => "full",
            Self::Auto => "auto",
        }
    }

    /// Layout that two flags select; `full` takes precedence.
    pub const fn of_flags(full: bool, auto: bool) -> Self {
        match (full, auto) {
            (true, _) => Self::Full,
            (false, true) => Self::Auto,
            (false, false) => Self::Frag,
        }
    }
}

/// Measurements of a queue since the last decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// Number of returned buffers.
    pub freed: u64,
    /// Number of buffers that another thread returned.
    pub foreign: u64,
    /// Pages in use.
    pub outstanding: u32,
    /// Pages of the pool.
    pub pages: u32,
    /// Nanoseconds of a refill per buffer, with fragments of pages and with whole pages; 0:
    /// unknown.
    pub refill_ns: [u32; 2],
    /// True for some time after whole pages proved slower.
    pub resting: bool,
}

/// Reason for the layout of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A page does not hold two buffers of this size.
    Jumbo {
        /// Bytes of a buffer.
        size: u32,
        /// Bytes of a page.
        page: u32,
    },
    /// An XDP program requires a page for each frame.
    Xdp,
    /// The user requested the layout.
    Asked,
    /// Percentage of buffers that other threads return; high, so that whole pages are used.
    Foreign(u32),
    /// Percentage of pages in use; high, so that fragments are used.
    Memory(u32),
    /// A refill with whole pages is slower than with fragments.
    Dear {
        /// Nanoseconds per buffer with whole pages.
        full: u32,
        /// Nanoseconds per buffer with fragments of pages.
        frag: u32,
    },
    /// Whole pages were requested, but the pool has too few.
    RolledBack {
        /// Pages of the pool.
        pages: u32,
    },
    /// Measurements show no reason for whole pages.
    Cheap,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Jumbo { size, page } => {
                write!(f, "forced: two buffers of {size} bytes do not fit a page of {page}")
            }
            Self::Xdp => f.write_str("forced: an XDP program needs a page for each frame"),
            Self::Asked => f.write_str("requested"),
            Self::Foreign(share) => {
                write!(f, "auto: {share} % of the buffers are returned by other threads")
            }
            Self::Memory(share) => write!(f, "auto: {share} % of the pages are in use"),
            Self::Dear { full, frag } => {
                write!(
                    f,
                    "auto: refill takes {full} ns for a buffer with whole pages, {frag} ns with \
                     parts of pages"
                )
            }
            Self::RolledBack { pages } => write!(
                f,
                "rolled back: {pages} pages are too few for a ring of whole pages and the pages in \
                 use"
            ),
            Self::Cheap => f.write_str("auto: buffers are returned by the thread that took them"),
        }
    }
}

impl Cause {
    /// True if the user's request has no effect.
    pub const fn is_forced(self) -> bool {
        matches!(self, Self::Jumbo { .. } | Self::Xdp)
    }
}

/// Buffer layout of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// True if each buffer has a whole page.
    pub full: bool,
    /// Reason for the layout.
    pub cause: Cause,
}

/// Percentage of foreign returns above which whole pages are used. Fragments are used again at half
/// of this percentage, so that the layout does not oscillate.
const FOREIGN_HIGH: u32 = 50;
/// Percentage of pages in use above which fragments of pages are used.
const MEMORY_HIGH: u32 = 75;
/// Refill time of whole pages, in percent of that of fragments, above which fragments are used.
const DEAR: u64 = 120;
/// Minimum number of returned buffers for a decision.
const ENOUGH: u64 = 1024;

fn percent(part: u64, of: u64) -> u32 {
    (part.saturating_mul(100) / of.max(1)).min(100) as u32
}

impl Layout {
    /// Selects the layout of buffers of `size` bytes in pages of `page` bytes. `now` is the current
    /// layout.
    pub fn decide(
        requested: RequestedLayout,
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
        match requested {
            RequestedLayout::Full => full(Cause::Asked),
            RequestedLayout::Frag => Self { full: false, cause: Cause::Asked },
            RequestedLayout::Auto => Self::measure(measured, now),
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

    /// Name of the layout.
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
        Layout::decide(RequestedLayout::Auto, (1920, 4096), false, &measured, now)
    }

    // Goal: forced layouts do not depend on the request, and report the reason with its numbers.
    #[test]
    fn forced_layouts() {
        for requested in [RequestedLayout::Frag, RequestedLayout::Full, RequestedLayout::Auto] {
            let none = Measured::default();
            let jumbo = Layout::decide(requested, (2112, 4096), false, &none, None);
            assert!(jumbo.full);
            let text = "forced: two buffers of 2112 bytes do not fit a page of 4096";
            assert_eq!(jumbo.cause.to_string(), text);
            let xdp = Layout::decide(requested, (64, 4096), true, &none, None);
            assert_eq!(xdp, Layout { full: true, cause: Cause::Xdp });
        }
    }

    // Goal: the flag `full` takes precedence over `auto`; without flags, fragments are used.
    #[test]
    fn requested_layouts() {
        let of = |full, auto| {
            let none = Measured::default();
            Layout::decide(RequestedLayout::of_flags(full, auto), (2048, 4096), false, &none, None)
                .full
        };
        assert_eq!([of(false, false), of(true, false), of(true, true)], [false, true, true]);
    }

    // Goal: `auto` selects whole pages if most buffers return from other threads, keeps them until
    // far fewer do, and selects fragments if memory is short.
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

    // Goal: whole pages that are slower are abandoned, and not tried again immediately.
    #[test]
    fn slow_whole_pages_are_abandoned() {
        let measured = |refill_ns, resting| Measured { refill_ns, resting, ..seen(2000, 1200, 10) };
        let full = Layout { full: true, cause: Cause::Foreign(60) };
        assert!(auto(measured([20, 24], false), Some(full)).full, "not by enough");
        assert!(auto(measured([0, 24], false), Some(full)).full, "nothing to compare with");
        let dear = auto(measured([20, 25], false), Some(full));
        assert_eq!(dear, Layout { full: false, cause: Cause::Dear { full: 25, frag: 20 } });
        let text = "auto: refill takes 25 ns for a buffer with whole pages, 20 ns with parts of \
                    pages";
        assert_eq!(dear.cause.to_string(), text);
        assert_eq!(auto(measured([20, 25], true), Some(dear)), dear);
        assert!(auto(measured([20, 25], false), Some(dear)).full, "tried again");
    }
}
