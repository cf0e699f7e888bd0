//! Implementation of [`Function`] and its facets for a group.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use mqnet_netdev::{
    Caps, Channel, FullCause, Function, HardwareDevice, Indirection, KernelInterface, LinkStatus,
    MemberView, Members, OpenChannelsError, Peer, Placement, Plan, PrivateFlags, QueuePairStats,
    RxBuffers, RxMemory, Steering,
};

use crate::group::{GroupFunction, Layout, OnLoss};
use crate::map::MemberQueue;
use crate::member::Member;

impl GroupFunction {
    fn primary(&self) -> &dyn Function {
        &*self.members[self.primary].function
    }

    /// Primary; `None` if the group is up and the primary is lost.
    fn present_primary(&mut self) -> Option<&mut dyn Function> {
        let primary = &mut self.members[self.primary];
        if self.combined && primary.joined.is_none() { None } else { Some(&mut *primary.function) }
    }

    fn view(&self, at: usize) -> MemberView {
        let member = &self.members[at];
        let served = self.in_use.iter().flat_map(|used| (0u16..).zip(&used.layout.places));
        let served: Vec<(u16, MemberQueue)> =
            served.map(|(channel, place)| (channel, *place)).collect();
        let mine = |channel: u16| self.map.place(channel).member == at;
        let all = served.iter().map(|(channel, _)| *channel);
        let others = served.iter().filter(|(channel, place)| place.member == at && !mine(*channel));
        let is_lost = self.combined && !member.is_here();
        let reason = match (&member.status, &member.trouble) {
            (LinkStatus::Down(why), _) => why.clone(),
            (_, Some(trouble)) => trouble.clone(),
            _ if is_lost => "it is being reopened".to_owned(),
            _ => String::new(),
        };
        let primary = at == self.primary;
        MemberView {
            address: member.function.name().to_owned(),
            identity: member.identity.clone(),
            primary,
            why: if primary { self.why_primary.clone() } else { String::new() },
            up: member.is_up() && !is_lost,
            reason,
            channels: all.filter(|&channel| mine(channel)).collect(),
            standing_in: others.map(|(channel, _)| *channel).collect(),
        }
    }

    fn all_caps(&self) -> Caps {
        let all = || self.members.iter().map(|member| &member.caps);
        let most: Vec<u16> = all().map(|caps| caps.channels).collect();
        // Count a member without a requested number of channels as unlimited.
        let wanted = all().map(|caps| caps.wanted.unwrap_or(u16::MAX));
        let wanted = all().any(|caps| caps.wanted.is_some()).then(|| self.map.most(wanted));
        let first = &self.members[0].caps;
        let both = |one: Caps, two: &Caps| Caps {
            mtu: one.mtu.or(two.mtu),
            mtu_found: one.mtu_found.into_iter().chain(two.mtu_found).min(),
            mtu_max: one.mtu_max.min(two.mtu_max),
            frame_max: one.frame_max.min(two.frame_max),
            rx_offloads: one.rx_offloads.and(two.rx_offloads),
            tx_offloads: one.tx_offloads.and(two.tx_offloads),
            rx_fixed: one.rx_fixed.or(two.rx_fixed),
            ..one
        };
        let caps = all().fold(first.clone(), both);
        Caps {
            channels: match self.on_loss {
                _ if self.is_whole() => most.into_iter().min().unwrap_or(1),
                OnLoss::Destroy => self.map.most(most),
                OnLoss::Degrade => self.map.most_with_one_lost(&most),
            },
            wanted,
            rx_offloads: caps.rx_offloads.consistent(),
            tx_offloads: caps.tx_offloads.consistent(),
            ..caps
        }
    }

    fn number(&self, member: usize, local: u16) -> u16 {
        self.map.channel(MemberQueue { member, local }) as u16
    }

    /// Current layout if the primary does not steer: flows then reach all of its queues, including
    /// those for channels of lost members. `None` if the primary steers, or no channels are in use.
    /// The table of a primary that steers must not contain such queues, because they would prevent
    /// the failback of the lost member.
    fn in_its_table(&self) -> Option<&Layout> {
        let used = self.in_use.as_ref().filter(|_| !self.primary().steers());
        used.map(|used| &used.layout)
    }

    /// Group channel of the queue `local` in the primary's table.
    fn of_table(&self, local: u16) -> u16 {
        let place = MemberQueue { member: self.primary, local };
        let places = self.in_its_table().map(|layout| &layout.places);
        let served = places.and_then(|places| places.iter().position(|other| *other == place));
        served.map_or_else(|| self.number(self.primary, local), |channel| channel as u16)
    }

    /// Queue of a channel in the primary's table: the inverse of [`of_table`](Self::of_table). The
    /// result may be a queue of another member, which the table cannot contain.
    fn in_table(&self, channel: u16) -> MemberQueue {
        let places = self.in_its_table().map(|layout| &layout.places);
        let served = places.and_then(|places| places.get(usize::from(channel)));
        served.copied().unwrap_or_else(|| self.map.place(channel))
    }
}

impl Function for GroupFunction {
    fn name(&self) -> &str {
        &self.name
    }

    fn caps(&self) -> Caps {
        self.all_caps()
    }

    fn set_partner(&mut self, partner: &Caps) {
        let parts: Vec<Caps> =
            (0..self.members.len()).map(|at| self.partner_part(partner, at)).collect();
        for (at, member) in self.members.iter_mut().enumerate() {
            member.function.set_partner(&parts[at]);
        }
    }

    fn poll_link(&mut self, now: Duration) -> LinkStatus {
        self.poll(now)
    }

    fn events(&self) -> Vec<BorrowedFd<'_>> {
        self.members.iter().flat_map(|member| member.function.events()).collect()
    }

    fn notes(&self) -> Vec<String> {
        self.members.iter().flat_map(|member| member.function.notes()).collect()
    }

    fn open(&mut self, plan: &Plan) -> Result<Vec<Channel>, OpenChannelsError> {
        self.open_all(plan)
    }

    fn close(&mut self, why: &str) {
        self.close_all(why);
    }

    fn prepare(&mut self, plan: &Plan) -> Result<Vec<Channel>, OpenChannelsError> {
        self.prepare_all(plan)
    }

    fn commit(&mut self) -> Result<(), OpenChannelsError> {
        self.commit_all()
    }

    fn abort(&mut self) {
        self.abort_all();
    }

    fn peer(&mut self) -> Option<&mut dyn Peer> {
        if self.far.is_some() { Some(self) } else { None }
    }

    fn stats(&self) -> &[Arc<QueuePairStats>] {
        &self.stats
    }

    fn full_cause(&self) -> FullCause {
        self.primary().full_cause()
    }

    fn full_means(&self) -> &'static str {
        self.primary().full_means()
    }

    mqnet_netdev::facets!(steering, kernel_interface, placement, private_flags, rx_buffers, group);
}

impl Steering for GroupFunction {
    fn steers(&self) -> bool {
        let mut here = self.members.iter().filter(|member| member.is_here());
        here.all(|member| member.function.steers())
    }

    fn waiting_most(&mut self) -> u32 {
        let here = self.members.iter_mut().filter(|member| member.is_here());
        here.map(|member| member.function.waiting_most()).max().unwrap_or(1)
    }

    fn steer(&mut self, channels: u16) -> Result<(), OpenChannelsError> {
        self.steer_all(channels)
    }

    fn indirection(&self) -> Option<Indirection> {
        let own = self.primary().indirection()?;
        let number = |&local: &u16| self.of_table(local);
        Some(Indirection { table: own.table.iter().map(number).collect(), ..own })
    }

    fn table_queues(&self, channels: u16) -> Vec<u16> {
        let own = match self.in_its_table() {
            Some(layout) => layout.totals[self.primary],
            None => self.map.share(channels, self.primary),
        };
        (0..own).map(|local| self.of_table(local)).collect()
    }

    fn refresh_indirection(&mut self) -> bool {
        self.present_primary().is_some_and(|function| function.refresh_indirection())
    }

    fn set_indirection(&mut self, table: &[u16], user_set: bool) -> Result<(), OpenChannelsError> {
        let primary = self.primary;
        if let Some(&channel) = table.iter().find(|&&i| self.in_table(i).member != primary) {
            let (owner, own) = (self.primary().name(), self.number(primary, 0));
            let step = self.members.len();
            return Err(self.error(format!(
                "the table is that of the primary, {owner}: channel {channel}, allowed: {own}, {}, \
                 ...",
                usize::from(own) + step
            )));
        }
        let own: Vec<u16> = table.iter().map(|&channel| self.in_table(channel).local).collect();
        match self.present_primary() {
            Some(function) => function.set_indirection(&own, user_set),
            None => Err(self.error("the primary, which has the table, is lost")),
        }
    }

    fn can_follow(&self) -> bool {
        self.members.iter().all(|member| member.function.can_follow())
    }
}

impl KernelInterface for GroupFunction {
    fn changed_mtu(&mut self) -> Option<u32> {
        let each = self.members.iter_mut().map(|member| member.function.changed_mtu());
        // Read the changes of all members; the last change applies.
        each.fold(None, |before, now| now.or(before))
    }

    fn restore_mtu(&mut self) -> Result<(), String> {
        self.members.iter_mut().try_for_each(|member| member.function.restore_mtu())
    }

    fn feeds_a_stack(&self) -> bool {
        self.members.iter().all(|member| member.function.feeds_a_stack())
    }

    fn set_carrier(&mut self, up: bool) {
        self.carrier = up;
        self.members.iter_mut().for_each(|member| member.function.set_carrier(up));
    }

    fn dropped_outside(&mut self) -> Option<u64> {
        let each = self.members.iter_mut().filter_map(|member| member.function.dropped_outside());
        each.reduce(|one, other| one + other)
    }
}

impl Placement for GroupFunction {
    fn identity(&self) -> Option<String> {
        Some(self.members[self.primary].identity.clone())
    }

    fn devices(&self) -> Vec<HardwareDevice> {
        let named = |function: &dyn Function| HardwareDevice {
            name: function.name().to_owned(),
            ..HardwareDevice::default()
        };
        // List the devices by the fixed map, without failovers: the channels fail back later.
        let one = |member: &Member| {
            member.function.devices().pop().unwrap_or_else(|| named(&*member.function))
        };
        self.members.iter().map(one).collect()
    }

    fn takes_high_cpus(&self) -> bool {
        match &self.far {
            // Use the first member: the role of an end may differ between members.
            Some(_) => self.members[0].function.takes_high_cpus(),
            None => self.members.iter().any(|member| member.function.takes_high_cpus()),
        }
    }
}

impl PrivateFlags for GroupFunction {
    fn flags(&self) -> Vec<(&'static str, bool)> {
        self.primary().flags()
    }

    fn set_flag(&mut self, flag: &str, on: bool) -> Result<(), OpenChannelsError> {
        let is = |f: &dyn Function| f.flags().iter().any(|&(name, is)| name == flag && is);
        let had: Vec<bool> = self.members.iter().map(|member| is(&*member.function)).collect();
        for at in 0..self.members.len() {
            if let Err(e) = self.members[at].function.set_flag(flag, on) {
                for (member, had) in self.members[..at].iter_mut().zip(had).rev() {
                    // Ignore errors while the previous values are restored.
                    let _ = member.function.set_flag(flag, had);
                }
                return Err(self.error(e.to_string()));
            }
        }
        Ok(())
    }
}

impl RxBuffers for GroupFunction {
    fn rx_memory(&self) -> Vec<RxMemory> {
        let members = self.members.iter().enumerate();
        let mut all: Vec<RxMemory> = members
            .flat_map(|(at, member)| {
                let number = move |queue: RxMemory| RxMemory {
                    queue: self.number(at, queue.queue),
                    ..queue
                };
                member.function.rx_memory().into_iter().map(number)
            })
            .collect();
        all.sort_by_key(|queue| queue.queue);
        all
    }

    fn set_xdp(&mut self, attached: bool) {
        self.members.iter_mut().for_each(|member| member.function.set_xdp(attached));
    }
}

impl Members for GroupFunction {
    fn member(&mut self, at: usize) -> Option<&mut dyn Function> {
        let map = self.map;
        let places = self.in_use.as_ref().map(|used| &used.layout.places);
        let own = |(channel, place): (u16, &MemberQueue)| map.place(channel) == *place;
        let in_place = places.is_some_and(|places| (0..).zip(places).all(own));
        let member = self.members.get_mut(at).filter(|_| in_place && self.refit.is_none());
        Some(&mut *member?.function)
    }

    fn members(&self) -> Vec<MemberView> {
        (0..self.members.len()).map(|at| self.view(at)).collect()
    }

    fn least_channels(&self) -> u16 {
        self.members.len() as u16
    }

    fn counted(&self) -> u16 {
        if self.is_whole() {
            return 0;
        }
        let served = self.in_use.iter().flat_map(|used| &used.layout.places);
        served.map(|place| self.map.channel(*place) as u16 + 1).max().unwrap_or(0)
    }

    fn survives(&mut self, now: Duration) -> bool {
        self.poll_for_loss(now)
    }

    fn refit(&mut self) -> Vec<u16> {
        self.refit.as_ref().map(|refit| refit.channels.clone()).unwrap_or_default()
    }

    fn refitted(&mut self) {
        self.settle();
    }
}
