//! The wanted number of spares of each kind: as many as pods have recently requested, the latest first, up to
//! the handler's limit. Pure.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::kind::SpareKind;

/// How long a pod's asking counts.
pub(super) const WINDOW: Duration = Duration::from_secs(300);

/// Most requests remembered.
const ASKED_MAX: usize = 256;

/// Kinds recently requested by pods.
#[derive(Debug, Default)]
pub(super) struct Demand(VecDeque<(Instant, SpareKind)>);

/// The spares of a handler, or those shared by all handlers: the limit, and the kind wanted before the first
/// request.
#[derive(Clone, Debug)]
pub(super) struct Allowance {
    /// None for spares shared by all handlers.
    pub(super) handler: Option<String>,
    pub(super) most: usize,
    /// None if it is unknown before a pod comes.
    pub(super) first: Option<SpareKind>,
}

impl Demand {
    pub(super) fn asked(&mut self, kind: &SpareKind, now: Instant) {
        self.0.push_back((now, kind.clone()));
        while self.0.len() > ASKED_MAX
            || self.0.front().is_some_and(|(at, _)| now.duration_since(*at) >= WINDOW)
        {
            self.0.pop_front();
        }
    }

    /// The wanted number of each kind.
    pub(super) fn wanted(&self, allowances: &[Allowance], now: Instant) -> Vec<(SpareKind, usize)> {
        let mut wanted: Vec<(SpareKind, usize)> = Vec::new();
        for allowance in allowances {
            let of_late = self.0.iter().rev().filter(|(at, kind)| {
                kind.handler() == allowance.handler.as_deref() && now.duration_since(*at) < WINDOW
            });
            let mut kinds: Vec<&SpareKind> = of_late.map(|(_, kind)| kind).take(allowance.most).collect();
            if kinds.len() < allowance.most
                && let Some(first) = &allowance.first
                && !kinds.contains(&first)
            {
                kinds.push(first);
            }
            for kind in kinds {
                match wanted.iter_mut().find(|(of, _)| of == kind) {
                    Some((_, count)) => *count += 1,
                    None => wanted.push((kind.clone(), 1)),
                }
            }
        }
        wanted
    }
}

#[cfg(test)]
mod tests {
    use runtime_spec::{HandlerConfig, TemplateScope, VmBounds, VolumeCache};

    use super::*;

    fn kind(scratch_bytes: u64) -> SpareKind {
        let handler = HandlerConfig {
            name: "kvm".into(),
            template: TemplateScope::Node,
            spare_vms: 4,
            ..HandlerConfig::default()
        };
        SpareKind::all_of(&handler, "", &VmBounds::default(), scratch_bytes).remove(0)
    }

    fn allowed(most: usize) -> [Allowance; 1] {
        [Allowance { handler: Some("kvm".into()), most, first: Some(kind(1)) }]
    }

    #[tokio::test(start_paused = true)]
    async fn as_many_are_wanted_as_were_asked_for_of_late_the_latest_first() {
        let mut demand = Demand::default();
        let begun = Instant::now();
        assert_eq!(demand.wanted(&allowed(4), begun), [(kind(1), 1)], "before any pod has asked");
        assert_eq!(demand.wanted(&allowed(0), begun), []);
        for bytes in [2, 1, 1, 3] {
            demand.asked(&kind(bytes), begun);
        }
        assert_eq!(demand.wanted(&allowed(8), begun), [(kind(3), 1), (kind(1), 2), (kind(2), 1)]);
        assert_eq!(demand.wanted(&allowed(2), begun), [(kind(3), 1), (kind(1), 1)]);
        let other = [Allowance { handler: Some("other".into()), most: 9, first: None }];
        assert_eq!(demand.wanted(&other, begun), []);
        assert_eq!(demand.wanted(&allowed(4), begun + WINDOW), [(kind(1), 1)], "they count for a while");
    }

    #[tokio::test(start_paused = true)]
    async fn a_vmm_is_for_pods_of_every_handler_and_a_vm_for_those_of_one() {
        let mut demand = Demand::default();
        let vmm = SpareKind::Vmm(VolumeCache::Auto);
        let shared = Allowance { handler: None, most: 2, first: Some(vmm.clone()) };
        let both = [shared, allowed(4)[0].clone()];
        let begun = Instant::now();
        assert_eq!(demand.wanted(&both, begun), [(vmm.clone(), 1), (kind(1), 1)]);
        let other = SpareKind::Vmm(VolumeCache::Always);
        for asked in [&vmm, &other, &other, &kind(2)] {
            demand.asked(asked, begun);
        }
        assert_eq!(demand.wanted(&both, begun), [(other, 2), (kind(2), 1), (kind(1), 1)]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_remembered_is_bounded() {
        let mut demand = Demand::default();
        for bytes in 0..2000 {
            demand.asked(&kind(bytes), Instant::now());
        }
        assert_eq!(demand.0.len(), ASKED_MAX);
        tokio::time::advance(WINDOW).await;
        demand.asked(&kind(1), Instant::now());
        assert_eq!(demand.0.len(), 1);
    }
}
