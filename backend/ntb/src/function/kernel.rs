//! Part of [`NtbFunction`] for a peer that is a kernel's `ntb_transport`.

use std::time::Duration;

use mqnet_netdev::limits::{L2_HEADER, MTU_MAX};
use mqnet_netdev::{
    Bridge, Caps, Channel, LinkStatus, Offloads, OpenChannelsError, Plan, SlotRings, Steering,
};
use mqnet_sysio::eventfd::EventFd;
use mqnet_wire::Layer;

use super::{
    Arc, FAULT_REST, NtbFunction, REFUSED_REST, State, Status, Transport, VIOLATION_FORGOTTEN,
    VIOLATION_REST_MAX, transport,
};

/// Number of low bits of the session number that count the sessions of the channels within one
/// session of the hardware link.
const LIVES: u32 = 32;

impl NtbFunction {
    /// Polls the link with an `ntb_transport`, or begins that link, and returns its status. `None`
    /// if the peer may be mqnet.
    pub(super) fn poll_transport(&mut self, now: Duration) -> Option<LinkStatus> {
        if self.transport.is_none() {
            let begun = self.begin_transport()?;
            match begun {
                Ok(begun) => self.transport = begun,
                Err(why) => return Some(self.set_down(why)),
            }
        }
        let hw = self.hw.transport()?;
        let Some(link) = &mut self.transport else {
            // Hardware that can join two mqnet ends has windows while its link is up. Without
            // windows, the peer can only be a kernel: wait for its handshake.
            let why = "waiting for the peer's ntb_transport".to_owned();
            return self.hw.windows().is_none().then(|| self.set_down(why));
        };
        match link.poll(&*self.hw, hw, now) {
            Ok(Status::Up(life)) => {
                Some(LinkStatus::Up { session: self.session << LIVES | life & u64::from(u32::MAX) })
            }
            Ok(Status::Down(why)) => Some(self.set_down(why)),
            Err(why) => {
                self.transport = None;
                self.hw.reset(now, FAULT_REST);
                Some(self.set_down(why))
            }
        }
    }

    fn set_down(&mut self, why: String) -> LinkStatus {
        self.why_down.clone_from(&why);
        LinkStatus::Down(why)
    }

    /// Answers the handshake of an `ntb_transport`. `None` if the hardware cannot have such a peer;
    /// `Some(Ok(None))` if the peer has not begun the handshake; `Some(Err)` with the reason of a
    /// failure.
    fn begin_transport(&mut self) -> Option<Result<Option<Transport>, String>> {
        let hw = self.hw.transport()?;
        if self.control.is_none() {
            match EventFd::new() {
                Ok(event) => self.control = Some(Arc::new(event)),
                Err(e) => return Some(Err(format!("eventfd: {e}"))),
            }
        }
        let control = self.control.clone()?;
        if self.membership.is_some()
            && self.hw.spad_read(transport::handshake::pad::VERSION) == transport::VERSION
        {
            let why = "refused: the peer is a kernel's ntb_transport, which cannot be a member of \
                       a group: use its endpoint alone";
            return Some(Err(why.to_owned()));
        }
        let begun = match Transport::begin(&*self.hw, hw, self.transport_mtu, control) {
            Ok(begun) => begun,
            Err(refused) => return Some(Err(format!("refused: {refused}"))),
        };
        if begun.is_some() {
            // Drop an offer that this end made to an mqnet peer.
            self.forget_offer();
        }
        Some(Ok(begun))
    }

    fn forget_offer(&mut self) {
        self.state = State::Down;
        (self.agreement, self.prepared) = (None, None);
        (self.our_offer, self.their_offer) = (None, None);
        self.was_refused = false;
    }

    /// Capabilities of the link with an `ntb_transport`; `None` without such a link.
    pub(super) fn transport_caps(&self) -> Option<Caps> {
        let link = self.transport.as_ref()?;
        let payload = self.transport_mtu.saturating_sub(transport::HEADER);
        let mtu_max = payload.saturating_sub(transport::ETHERNET).min(MTU_MAX);
        Some(Caps {
            layer: Layer::Ethernet,
            channels: link.pairs(),
            wanted: Some(link.channels(self.now)),
            mtu: self.mtu,
            mtu_found: None,
            mtu_max,
            // `L2_HEADER` includes VLAN tags. Frames of the largest MTU with VLAN tags do not fit a
            // slot and are dropped.
            frame_max: mtu_max + L2_HEADER,
            rx_offloads: Offloads::NONE,
            tx_offloads: Offloads::NONE,
            rx_fixed: Offloads::NONE,
        })
    }

    /// Opens channels over the queue pairs of an `ntb_transport`; `None` without a link to such a
    /// peer.
    pub(super) fn open_transport(
        &mut self,
        plan: &Plan,
    ) -> Option<Result<Vec<Channel>, OpenChannelsError>> {
        let link = self.transport.as_mut()?;
        let opened = link.channels_of(plan, &self.stats, self.now);
        Some(opened.map_err(|what| self.error(what)))
    }

    /// Ends the session of the channels. After a violation, also drops the link with the
    /// `ntb_transport` and resets the hardware link.
    pub(super) fn close_transport(&mut self) {
        let Some(link) = &mut self.transport else { return };
        match link.violation() {
            None => link.close(&*self.hw, self.now),
            Some(what) => {
                self.why_down = format!("the peer broke the protocol: {what}");
                // Keep the reason in `why_down` until the next handshake.
                self.was_refused = true;
                self.transport = None;
                let rest = self.next_violation_rest();
                self.hw.reset(self.now, rest);
            }
        }
    }

    /// Delay before the next session after a violation, twice the last delay if that ended less
    /// than `VIOLATION_FORGOTTEN` ago. Repeated violations are likely: a peer with another
    /// `transport_mtu` violates the protocol at its first frame.
    fn next_violation_rest(&mut self) -> Duration {
        let last = self.violation_rest.filter(|(_, end)| self.now < *end + VIOLATION_FORGOTTEN);
        let rest = last.map_or(REFUSED_REST, |(rest, _)| (rest * 2).min(VIOLATION_REST_MAX));
        self.violation_rest = Some((rest, self.now + rest));
        rest
    }
}

impl Steering for NtbFunction {
    /// False: the kernel chooses the queue pair of each frame.
    fn steers(&self) -> bool {
        false
    }

    fn waiting_most(&mut self) -> u32 {
        self.transport.as_ref().map_or(1, Transport::waiting_most)
    }
}

impl Bridge for NtbFunction {
    fn protocol(&self) -> Option<&'static str> {
        match (&self.transport, self.state) {
            (Some(_), _) => Some(transport::NAME),
            (None, State::Up) => Some("mqnet"),
            (None, _) => None,
        }
    }

    fn channels_fixed(&self) -> Option<String> {
        self.transport.as_ref().map(|_| {
            "channels: the peer's ntb_netdev decides their number: ethtool -L DEV combined N in \
             the guest"
                .to_owned()
        })
    }

    fn slot_rings(&self) -> Option<SlotRings> {
        self.transport.as_ref()?.slot_rings(self.hw.transport()?)
    }
}
