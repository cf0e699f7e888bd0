//! One fake link.

use mqnet_control_api::{
    ApiError, Coalesce, Code, DriverInfo, Feature, FlowRule, FlowRules, LinkInfo, LinkSpec,
    LinkState, Napi, NetdevInfo, PrivFlag, Queue, QueueType, Rings, Rss, SetFeatures, SetFlowRules,
    SetPrivFlags, SetRings, WorkerInfo,
};

use super::check;
use super::tc::FakeTc;

/// Side 0 plays a TAP, side 1 a bridge.
#[derive(Debug)]
pub(super) struct FakeLink {
    number: u32,
    pub(super) name: String,
    pub(super) spec: LinkSpec,
    pub(super) names: [String; 2],
    netns: Option<u64>,
    pub(super) combined: u16,
    pub(super) mtu: u32,
    pub(super) coalesce: Coalesce,
    pub(super) table: Option<Vec<u16>>,
    rules: Vec<FlowRule>,
    pub(super) features: [Vec<Feature>; 2],
    pub(super) tc: [FakeTc; 2],
    rings: [u32; 2],
    flag: bool,
}

fn feature(name: &str, fixed: bool) -> Feature {
    Feature { name: name.to_owned(), active: true, fixed, requested: true }
}

impl FakeLink {
    /// `vmN` to `ntbN`.
    pub(super) fn numbered(number: usize) -> Self {
        let spec = LinkSpec {
            a: format!("tap:vm{number}"),
            b: format!("ntb:/run/x{number}.sock"),
            channels: Some(4),
            workers: None,
            cpus: None,
            poll_window: None,
        };
        Self::new(number, &format!("vm{number}"), spec)
    }

    pub(super) fn new(number: usize, name: &str, spec: LinkSpec) -> Self {
        let features =
            || vec![feature("tx-checksum-ip-generic", false), feature("tx-vlan-hw-insert", true)];
        Self {
            number: number as u32,
            name: name.to_owned(),
            names: [name.to_owned(), format!("ntb{number}")],
            netns: None,
            combined: spec.channels.unwrap_or(4).min(super::CHANNELS_MAX),
            mtu: 1500,
            coalesce: Coalesce { rx_usecs: spec.poll_window.unwrap_or(1000), tx_frames: 0 },
            table: None,
            rules: Vec::new(),
            features: [features(), features()],
            tc: [FakeTc::new(), FakeTc::new()],
            rings: [256, 256],
            flag: false,
            spec,
        }
    }

    pub(super) fn rename(&mut self, device: &str, netns: Option<u64>) {
        self.names[0] = device.to_owned();
        self.netns = netns;
    }

    /// Which side has this name.
    pub(super) fn side(&self, dev: &str) -> Option<usize> {
        self.names.iter().position(|name| name == dev)
    }

    pub(super) fn ifindex(&self, side: usize) -> u32 {
        1_000_000 + 2 * self.number + side as u32
    }

    pub(super) fn napi_id(&self, side: usize, channel: u16) -> u32 {
        10_000 + 200 * self.number + 100 * side as u32 + u32::from(channel)
    }

    pub(super) fn info(&self) -> LinkInfo {
        LinkInfo {
            recent_drops: Vec::new(),
            offloads: Vec::new(),
            name: self.name.clone(),
            spec: self.spec.clone(),
            state: LinkState::Up,
            reason: None,
            next_attempt_ms: None,
            notes: Vec::new(),
            netdevs: self.netdevs().into(),
            channels: self.combined,
            mtu: Some(self.mtu),
            frame_max: Some(self.mtu + 14),
            rx_buffers: Vec::new(),
            placement: Vec::new(),
            workers: vec![WorkerInfo {
                id: 0,
                cpu: Some(0),
                node: None,
                tid: None,
                passes: 100,
                sleeps: 10,
            }],
        }
    }

    pub(super) fn netdevs(&self) -> [NetdevInfo; 2] {
        let functions = [&self.spec.a, &self.spec.b];
        [0, 1].map(|side| NetdevInfo {
            name: self.names[side].clone(),
            ifindex: self.ifindex(side),
            netns: self.netns.filter(|_| side == 0),
            function: functions[side].clone(),
            link: self.name.clone(),
            partner: self.names[1 - side].clone(),
            carrier: true,
            protocol: None,
            members: Vec::new(),
        })
    }

    pub(super) fn rings(&self, side: usize) -> Rings {
        if side == 0 {
            let all = Some(500);
            return Rings { rx_max: all, rx: all, tx_max: None, tx: None, unit: "frames".into() };
        }
        let [rx, tx] = self.rings.map(Some);
        Rings { rx_max: Some(1024), rx, tx_max: Some(1024), tx, unit: "KiB".into() }
    }

    pub(super) fn set_rings(&mut self, side: usize, want: &SetRings) -> Result<bool, ApiError> {
        if side == 0 {
            let why = "the rings of a TAP belong to its kernel: `ip link set DEV txqueuelen N`";
            return Err(ApiError::new(Code::NotSupported, why));
        }
        want.rx.map_or(Ok(()), |size| check::ring("rx", size))?;
        want.tx.map_or(Ok(()), |size| check::ring("tx", size))?;
        let new = [want.rx.unwrap_or(self.rings[0]), want.tx.unwrap_or(self.rings[1])];
        Ok(std::mem::replace(&mut self.rings, new) != new)
    }

    pub(super) fn rss(&self) -> Rss {
        let spread = || (0..check::BUCKETS).map(|n| n as u16 % self.combined).collect();
        Rss {
            rings: self.combined,
            indirection_table: self.table.clone().unwrap_or_else(spread),
            hash_function: "xor".to_owned(),
            user_set: self.table.is_some(),
        }
    }

    pub(super) fn rules(&self) -> FlowRules {
        FlowRules { rings: self.combined, size: check::RULES, rules: self.rules.clone() }
    }

    pub(super) fn set_rules(&mut self, want: &SetFlowRules) -> Result<bool, ApiError> {
        let location = check::rule(want, self.combined)?;
        let before = self.rules.clone();
        self.rules.retain(|rule| rule.location != location);
        self.rules.extend(want.add.clone());
        self.rules.sort_by_key(|rule| rule.location);
        Ok(self.rules != before)
    }

    pub(super) fn set_features(
        &mut self,
        side: usize,
        want: &SetFeatures,
    ) -> Result<bool, ApiError> {
        let mut new = self.features[side].clone();
        for (name, &on) in &want.features {
            let Some(feature) = new.iter_mut().find(|feature| feature.name == *name) else {
                let why = format!("features: no feature `{name}`");
                return Err(ApiError::field("features", why));
            };
            if feature.fixed && feature.active != on {
                let why = format!("features: `{name}` is fixed");
                return Err(ApiError::new(Code::NotSupported, why));
            }
            (feature.active, feature.requested) = (on, on);
        }
        Ok(std::mem::replace(&mut self.features[side], new.clone()) != new)
    }

    pub(super) fn driver(&self, side: usize) -> DriverInfo {
        let (driver, address) = [("mqnet-tap", &self.spec.a), ("mqnet-ntb", &self.spec.b)][side];
        DriverInfo {
            driver: driver.to_owned(),
            version: "0.1.0".to_owned(),
            firmware_version: String::new(),
            bus_info: address.clone(),
        }
    }

    pub(super) fn priv_flags(&self, side: usize) -> Result<Vec<PrivFlag>, ApiError> {
        if side == 1 {
            return Err(ApiError::new(Code::NotSupported, "a bridge has no private flags"));
        }
        Ok(vec![PrivFlag { name: "busy-poll".to_owned(), on: self.flag, notes: Vec::new() }])
    }

    pub(super) fn set_priv_flags(
        &mut self,
        side: usize,
        want: &SetPrivFlags,
    ) -> Result<bool, ApiError> {
        let known = self.priv_flags(side)?;
        let unknown = want.flags.keys().find(|name| known.iter().all(|flag| flag.name != **name));
        if let Some(name) = unknown {
            let why = format!("flags: no private flag `{name}`");
            return Err(ApiError::field("flags", why));
        }
        let on = want.flags.values().next().copied().unwrap_or(self.flag);
        Ok(std::mem::replace(&mut self.flag, on) != on)
    }

    pub(super) fn queues(&self, side: usize) -> Vec<Queue> {
        let function = self.driver(side).bus_info;
        let queue = |kind, napi_side, channel| Queue {
            id: u32::from(channel),
            ifindex: self.ifindex(side),
            kind,
            napi_id: Some(self.napi_id(napi_side, channel)),
            function: function.clone(),
        };
        let rx = (0..self.combined).map(|channel| queue(QueueType::Rx, side, channel));
        let tx = (0..self.combined).map(|channel| queue(QueueType::Tx, 1 - side, channel));
        rx.chain(tx).collect()
    }

    pub(super) fn napis(&self, side: usize) -> Vec<Napi> {
        let napi = |channel| Napi {
            id: self.napi_id(side, channel),
            ifindex: self.ifindex(side),
            pid: Some(77),
            defer_hard_irqs: 0,
            gro_flush_timeout: 0,
            irq_suspend_timeout: 0,
            threaded: "enabled".to_owned(),
            function: self.driver(side).bus_info,
        };
        (0..self.combined).rev().map(napi).collect()
    }
}
