//! Endpoints that the driver `ntb_hw_epf` supports: PCI IDs, BARs and registers.

use std::fmt;
use std::str::FromStr;

use mqnet_vfio_user::{Identity, MsixLocation};

/// Bytes of a guest's page; a BAR is mapped or trapped in whole pages.
pub(super) const PAGE: u64 = 4096;
/// Numbers of interrupt vectors that the driver accepts.
pub const VECTORS: std::ops::RangeInclusive<u16> = 4..=32;
/// Smallest and largest allowed size of a window, which must also be a power of two.
pub const WINDOW: std::ops::RangeInclusive<u32> = 1 << 16..=1 << 28;
/// Number of scratchpads of each end.
pub(super) const SPADS: usize = 32;

/// Offsets of registers in the first page of BAR 0.
pub(super) mod register {
    pub(crate) const COMMAND: u32 = 0x00;
    pub(crate) const ARGUMENT: u32 = 0x04;
    /// Status of the last command, 16 bits.
    pub(crate) const STATUS: u32 = 0x08;
    /// State of the link, 16 bits.
    pub(crate) const LINK: u32 = 0x0a;
    pub(crate) const ADDRESS: [u32; 2] = [0x10, 0x14];
    pub(crate) const SIZE: [u32; 2] = [0x18, 0x1c];
    pub(crate) const WINDOWS: u32 = 0x20;
    pub(crate) const WINDOW_OFFSET: u32 = 0x24;
    pub(crate) const SPAD_OFFSET: u32 = 0x28;
    pub(crate) const SPAD_COUNT: u32 = 0x2c;
    pub(crate) const DOORBELL_ENTRY: u32 = 0x30;
    const DOORBELL_DATA: u32 = 0x34;
    const DOORBELL_OFFSET: u32 = 0xb4;
    /// Scratchpads that this end writes and the driver reads as its own.
    pub(crate) const OWN_SPADS: u32 = 0x400;

    /// Register with the value that the driver writes into the doorbell entry of a vector.
    pub(crate) fn doorbell_data(vector: u16) -> u32 {
        DOORBELL_DATA + 4 * u32::from(vector)
    }

    /// Register with the offset that the driver adds to the address of a vector's doorbell.
    pub(crate) fn doorbell_offset(vector: u16) -> u32 {
        DOORBELL_OFFSET + 4 * u32::from(vector)
    }
}

/// Values of the command register.
pub(super) mod command {
    pub(crate) const CONFIGURE_DOORBELL: u32 = 1;
    pub(crate) const TEARDOWN_DOORBELL: u32 = 2;
    pub(crate) const CONFIGURE_WINDOW: u32 = 3;
    pub(crate) const TEARDOWN_WINDOW: u32 = 4;
    pub(crate) const LINK_UP: u32 = 5;
    pub(crate) const LINK_DOWN: u32 = 6;
    /// Flag in the argument of [`CONFIGURE_DOORBELL`]: the vectors are MSI-X.
    pub(crate) const MSIX: u32 = 1 << 16;
}

/// Values of the status register.
pub(super) const STATUS_OK: u16 = 1;
pub(super) const STATUS_ERROR: u16 = 2;

/// Vector of link events.
pub(super) const LINK_VECTOR: u16 = 0;
/// Vector and doorbell entry of doorbell 0. Entry 1 is unused.
pub(super) const FIRST_VECTOR: u16 = 2;

/// Offset of the trapped page of doorbells in their BAR; the page before it is mapped.
pub(super) const TRAP: u32 = PAGE as u32;
/// Bytes of both pages of doorbells.
pub(super) const DOORBELLS_LEN: u64 = 2 * PAGE;

/// Bytes of BAR 0: a mapped page of registers and a trapped page with the MSI-X table.
pub(super) const CONFIG_LEN: u64 = 2 * PAGE;
pub(super) const MSIX_PLACE: MsixLocation =
    MsixLocation { bar: 0, table: PAGE as u32, pending: PAGE as u32 + 0x800 };

/// Endpoint that the driver supports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BoardModel {
    /// Renesas R-Car S4.
    #[default]
    Rcar,
    /// NXP i.MX8.
    Imx8,
    /// TI J721E.
    J721e,
}

impl BoardModel {
    /// All models, the default first.
    pub const ALL: [Self; 3] = [Self::Rcar, Self::Imx8, Self::J721e];

    /// Name of the model in an endpoint address.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rcar => "rcar",
            Self::Imx8 => "imx8",
            Self::J721e => "j721e",
        }
    }

    /// PCI identity; the class is RAM.
    pub fn identity(self) -> Identity {
        let (vendor, device) = match self {
            Self::Rcar => (0x1912, 0x0030),
            Self::Imx8 => (0x1957, 0x0809),
            Self::J721e => (0x104c, 0xb00d),
        };
        Identity { vendor, device, class: 0x05_0000, revision: 0 }
    }

    /// Largest number of memory windows.
    pub fn windows_max(self) -> usize {
        self.bars().windows.len()
    }

    pub(super) fn bars(self) -> Bars {
        match self {
            Self::Rcar => Bars { peer_spads: None, doorbells: 4, windows: &[2] },
            Self::Imx8 => Bars { peer_spads: None, doorbells: 2, windows: &[4, 5] },
            Self::J721e => Bars { peer_spads: Some(1), doorbells: 2, windows: &[2, 3, 4, 5] },
        }
    }
}

impl fmt::Display for BoardModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for BoardModel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|endpoint| endpoint.name() == text);
        found.ok_or_else(|| format!("device '{text}': allowed are rcar, imx8, j721e"))
    }
}

/// BARs of an endpoint. The registers are always in BAR 0.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bars {
    /// BAR of the peer's scratchpads; `None` if they follow the driver's own scratchpads in BAR
    /// 0.
    pub(super) peer_spads: Option<usize>,
    pub(super) doorbells: usize,
    /// BAR of each window. Window 0 may share its BAR with the doorbells.
    pub(super) windows: &'static [usize],
}

impl Bars {
    /// Offset of window 0 in its BAR: 0, or `window` (half of the BAR) if the BAR has doorbells
    /// too.
    pub(super) fn first_window_at(&self, window: u32) -> u32 {
        if self.windows[0] == self.doorbells { window } else { 0 }
    }
}
