//! Against a reference: what a peer should see is what is offered and shared now, and nothing more is to be
//! said about it.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Event {
    Offer(u8, Vec<(u8, u8)>),
    Withdraw(u8),
    Share(u8, u8, u8),
    Unshare(u8, u8, u8),
    Restart,
    Pull(u8),
    HalfPull(u8),
}

fn event() -> impl Strategy<Value = Event> {
    let tools = proptest::collection::vec((0..4_u8, 0..3_u8), 0..4);
    prop_oneof![
        4 => (0..3_u8, tools).prop_map(|(server, tools)| Event::Offer(server, tools)),
        1 => (0..3_u8).prop_map(Event::Withdraw),
        3 => (0..3_u8, 0..3_u8, 0..5_u8).prop_map(|(server, to, tool)| Event::Share(server, to, tool)),
        2 => (0..3_u8, 0..3_u8, 0..5_u8).prop_map(|(server, to, tool)| Event::Unshare(server, to, tool)),
        1 => Just(Event::Restart),
        4 => (1..3_u8).prop_map(Event::Pull),
        4 => (1..3_u8).prop_map(Event::HalfPull),
    ]
}

/// The state of the model.
#[derive(Default)]
struct Truth {
    offers: BTreeMap<ServerId, OfferedServer>,
    rules: Vec<Share>,
}

impl Truth {
    fn seen(&self, peer: u8) -> Vec<String> {
        let mut seen = Vec::new();
        for (server, offered) in &self.offers {
            let rules = self.rules.iter().filter(|rule| {
                rule.server == *server
                    && [ShareAudience::Cluster, ShareAudience::Node(node(peer))].contains(&rule.to)
            });
            let patterns: Vec<_> = rules.map(|rule| rule.tools.to_string()).collect();
            if patterns.is_empty() {
                continue;
            }
            seen.push(server.to_string());
            let shared = |name: &str| {
                patterns
                    .iter()
                    .any(|pattern| pattern == "*" || pattern == name)
            };
            for (name, record) in offered.tools.iter().filter(|(name, _)| shared(name)) {
                seen.push(format!("{server}:{name} {}", record.definition));
            }
        }
        seen
    }
}

fn rule(server: u8, to: u8, tool: u8) -> Share {
    let to = match to {
        0 => ShareAudience::Cluster,
        n => ShareAudience::Node(node(n)),
    };
    let tools = if tool == 4 {
        "*".to_owned()
    } else {
        format!("t{tool}")
    };
    share(&format!("s{server}"), to, &tools)
}

fn seen(held: &RemoteIndex) -> Vec<String> {
    let entries = held.entries().map(|(key, entry)| match entry {
        RemoteEntry::Server(_) => key.to_string(),
        RemoteEntry::Tool(tool) => format!("{key} {}", tool.definition),
    });
    entries.collect()
}

struct Scene {
    truth: Truth,
    own: LocalIndex,
    held: [RemoteIndex; 2],
    starts: u64,
}

impl Scene {
    fn carry_out(&mut self, event: Event) {
        match event {
            Event::Offer(server, tools) => {
                let id = ServerId::new(format!("s{server}"));
                let mut offer = offered(&[]);
                for (name, words) in tools {
                    let name: Arc<str> = format!("t{name}").into();
                    let record = tool(&name, &words.to_string());
                    offer.tools.insert(name, record);
                }
                self.own.offer(&id, Some(&offer));
                self.truth.offers.insert(id, offer);
            }
            Event::Withdraw(server) => {
                let id = ServerId::new(format!("s{server}"));
                self.own.offer(&id, None);
                self.truth.offers.remove(&id);
            }
            Event::Share(server, to, tool) => {
                self.truth.rules.push(rule(server, to, tool));
                self.own.set_shares(shares(&self.truth.rules));
            }
            Event::Unshare(server, to, tool) => {
                let ended = rule(server, to, tool);
                self.truth.rules.retain(|rule| *rule != ended);
                self.own.set_shares(shares(&self.truth.rules));
            }
            Event::Restart => {
                self.starts += 1;
                self.own = LocalIndex::new(self.starts);
                self.own.set_shares(shares(&self.truth.rules));
                for (id, offer) in &self.truth.offers {
                    self.own.offer(id, Some(offer));
                }
            }
            Event::Pull(peer) => {
                let held = &mut self.held[usize::from(peer) - 1];
                settle(&mut self.own, node(peer), held, at(0));
            }
            Event::HalfPull(peer) => {
                let held = &mut self.held[usize::from(peer) - 1];
                held.handle_link_down();
                let effects = held.handle_digest(self.own.digest(node(peer)), at(0));
                if let Some(pull) = pulled(&effects) {
                    // The owner answers, and the answer is lost.
                    let _lost = self.own.page(node(peer), &pull);
                    held.handle_link_down();
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn a_complete_copy_equals_what_is_offered_and_shared(
        events in proptest::collection::vec(event(), 0..40)
    ) {
        let mut scene = Scene {
            truth: Truth::default(),
            own: LocalIndex::new(0),
            held: Default::default(),
            starts: 0,
        };
        for event in events {
            let settles = if let Event::Pull(peer) = event { Some(peer) } else { None };
            scene.carry_out(event);
            if let Some(peer) = settles {
                let held = &scene.held[usize::from(peer) - 1];
                prop_assert!(held.is_current());
                prop_assert_eq!(seen(held), scene.truth.seen(peer));
                prop_assert_eq!(held.rejected_entries().count(), 0);
            }
        }
    }
}
