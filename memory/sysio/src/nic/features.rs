//! Features of an interface (`ethtool -k`), by the kernel's names.

use std::io;

use super::Nics;

const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GSSET_INFO: u32 = 0x37;
const ETHTOOL_GFEATURES: u32 = 0x3a;
/// String set of feature names.
const ETH_SS_FEATURES: u32 = 4;
/// Maximum number of features; the kernel has 64.
const MOST: usize = 256;
const NAME_LEN: usize = 32;

/// `struct ethtool_sset_info` for one set.
#[repr(C)]
struct CountRequest {
    command: u32,
    reserved: u32,
    sets: u64,
    count: u32,
}

/// `struct ethtool_gstrings` with space for all names.
#[repr(C)]
struct NamesRequest {
    command: u32,
    set: u32,
    count: u32,
    names: [[u8; NAME_LEN]; MOST],
}

/// `struct ethtool_gfeatures` with space for all features. Each block has the bits of 32 features:
/// available, requested, active, never changed.
#[repr(C)]
struct FeaturesRequest {
    command: u32,
    blocks: u32,
    bits: [[u32; 4]; MOST / 32],
}

const _: () = assert!(size_of::<CountRequest>() == 24);
const _: () = assert!(size_of::<NamesRequest>() == 12 + NAME_LEN * MOST);
const _: () = assert!(size_of::<FeaturesRequest>() == 8 + MOST / 2);

/// Feature of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NicFeature {
    /// Name, such as `tx-tcp-segmentation`.
    pub name: String,
    /// True if the feature is active.
    pub is_active: bool,
}

impl Nics {
    /// Features of an interface.
    pub fn features(&self, name: &str) -> io::Result<Vec<NicFeature>> {
        let mut count = CountRequest {
            command: ETHTOOL_GSSET_INFO,
            reserved: 0,
            sets: 1 << ETH_SS_FEATURES,
            count: 0,
        };
        self.ethtool(name, &mut count)?;
        // The kernel writes all names, for any size of the buffer.
        if count.count as usize > MOST {
            return Err(io::Error::from_raw_os_error(libc::E2BIG));
        }
        let mut names = Box::new(NamesRequest {
            command: ETHTOOL_GSTRINGS,
            set: ETH_SS_FEATURES,
            count: 0,
            names: [[0; NAME_LEN]; MOST],
        });
        self.ethtool(name, &mut *names)?;
        let blocks = (MOST / 32) as u32;
        let mut features =
            FeaturesRequest { command: ETHTOOL_GFEATURES, blocks, bits: [[0; 4]; MOST / 32] };
        self.ethtool(name, &mut features)?;
        let feature = |(at, name): (usize, &[u8; NAME_LEN])| {
            let text = name.split(|&byte| byte == 0).next().unwrap_or_default();
            let [_, _, active, _] = features.bits[at / 32];
            NicFeature {
                name: String::from_utf8_lossy(text).into_owned(),
                is_active: active & 1 << (at % 32) != 0,
            }
        };
        let shown = (count.count.min(names.count) as usize).min(MOST);
        Ok(names.names[..shown].iter().enumerate().map(feature).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: features are named, and the active features of the loopback interface are reported.
    #[test]
    fn active_features_are_named() {
        let features = Nics::open().unwrap().features("lo").unwrap();
        let of = |name: &str| features.iter().find(|feature| feature.name == name).unwrap();
        assert!(of("loopback").is_active, "{features:?}");
        assert!(!of("rx-lro").is_active, "{features:?}");
        assert!(Nics::open().unwrap().features("mqnet-no-such").is_err());
    }
}
