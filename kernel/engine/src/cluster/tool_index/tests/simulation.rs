//! Several nodes on a bad network: what is held converges to what is shared, and nothing that was not
//! shared with a node is ever sent to it.

use std::collections::{BTreeSet, VecDeque};

use super::*;

const NODES: u8 = 4;

/// A deterministic random generator.
struct Chance(u64);

impl Chance {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % most
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

#[derive(Clone)]
enum Message {
    Digest(IndexDigest),
    Pull(PullIndex),
    Page(Box<IndexPage>),
    NotNow(u64),
}

struct SimulatedNode {
    own: LocalIndex,
    held: RemoteIndexes,
    offers: BTreeMap<ServerId, OfferedServer>,
    rules: Vec<Share>,
    /// Everything ever shared with each peer.
    ever: BTreeMap<u8, BTreeSet<(String, Option<String>)>>,
}

struct Network {
    chance: Chance,
    now: u64,
    nodes: Vec<SimulatedNode>,
    under_way: VecDeque<(u64, u8, u8, Message)>,
    cut: BTreeSet<(u8, u8)>,
    calm: bool,
}

impl SimulatedNode {
    fn sees(&self, peer: u8) -> BTreeSet<(String, Option<String>)> {
        let shares = shares(&self.rules);
        let mut seen = BTreeSet::new();
        for (server, offer) in &self.offers {
            let view = ShareAudience::Node(node(peer));
            if shares.is_server_shared(view, server) {
                seen.insert((server.to_string(), None));
            }
            let tools = offer
                .tools
                .keys()
                .filter(|tool| shares.is_tool_shared(view, server, tool));
            seen.extend(tools.map(|tool| (server.to_string(), Some(tool.to_string()))));
        }
        seen
    }

    fn remember(&mut self) {
        for peer in 0..NODES {
            let seen = self.sees(peer);
            self.ever.entry(peer).or_default().extend(seen);
        }
    }
}

impl Network {
    fn new(seed: u64) -> Self {
        let node = |n: u8| SimulatedNode {
            own: LocalIndex::new(seed << 8 | u64::from(n)),
            held: RemoteIndexes::default(),
            offers: BTreeMap::new(),
            rules: Vec::new(),
            ever: BTreeMap::new(),
        };
        Self {
            chance: Chance(seed),
            now: 0,
            nodes: (0..NODES).map(node).collect(),
            under_way: VecDeque::new(),
            cut: BTreeSet::new(),
            calm: false,
        }
    }

    fn send(&mut self, from: u8, to: u8, message: Message) {
        let is_cut = self.cut.contains(&(from.min(to), from.max(to)));
        if is_cut || (!self.calm && self.chance.one_in(10)) {
            return;
        }
        if let Message::Page(page) = &message {
            let ever = &self.nodes[usize::from(from)].ever[&to];
            for change in &page.changes {
                let name = (change.server.clone(), change.tool.clone());
                assert!(ever.contains(&name), "{name:?} was never shared");
            }
        }
        let delay = 1 + self.chance.below(if self.calm { 5 } else { 400 });
        self.under_way
            .push_back((self.now + delay, from, to, message));
    }

    fn perform(&mut self, at_node: u8, of: u8, effects: Vec<IndexEffect>) {
        for pull in pulls(&effects) {
            self.send(at_node, of, Message::Pull(pull));
        }
    }

    fn deliver(&mut self) {
        let all = self.under_way.drain(..);
        let (due, later): (VecDeque<_>, _) = all.partition(|(when, ..)| *when <= self.now);
        self.under_way = later;
        for (_, from, to, message) in due {
            let now = at(self.now);
            let busy = !self.calm && self.chance.one_in(6);
            let receiver = &mut self.nodes[usize::from(to)];
            let effects = match message {
                Message::Digest(digest) => receiver.held.handle_digest(node(from), digest, now),
                Message::Page(page) => receiver.held.handle_page(node(from), *page, now),
                Message::NotNow(number) => {
                    let why = PullFailure::Later(200);
                    receiver
                        .held
                        .handle_pull_failure(node(from), number, why, now)
                }
                Message::Pull(pull) if busy => {
                    self.send(to, from, Message::NotNow(pull.number));
                    continue;
                }
                Message::Pull(pull) => {
                    let page = receiver.own.page(node(from), &pull);
                    self.send(to, from, Message::Page(Box::new(page)));
                    continue;
                }
            };
            self.perform(to, from, effects);
        }
    }

    fn step(&mut self) {
        self.now += 20;
        self.deliver();
        for n in 0..NODES {
            let due = self.nodes[usize::from(n)].held.handle_timeout(at(self.now));
            for (of, effect) in due {
                self.perform(n, of.0[0], vec![effect]);
            }
        }
        if self.now.is_multiple_of(500) {
            for (from, to) in pairs() {
                let digest = self.nodes[usize::from(from)].own.digest(node(to));
                self.send(from, to, Message::Digest(digest));
            }
        }
    }

    fn disturb(&mut self) {
        let n = self.chance.below(NODES.into()) as u8;
        let other = self.chance.below(NODES.into()) as u8;
        let server = ServerId::new(format!("s{}", self.chance.below(3)));
        let what = self.chance.below(12);
        let draws: Vec<u64> = (0..4).map(|_| self.chance.below(6)).collect();
        let it = &mut self.nodes[usize::from(n)];
        match what {
            0..=3 => {
                let mut offer = offered(&[]);
                for draw in draws {
                    let name = format!("t{draw}");
                    offer
                        .tools
                        .insert(name.as_str().into(), tool(&name, &format!("{}", self.now)));
                }
                it.own.offer(&server, Some(&offer));
                it.offers.insert(server, offer);
            }
            4 => {
                it.own.offer(&server, None);
                it.offers.remove(&server);
            }
            5..=6 => {
                let to = match draws[0] {
                    0..=2 => ShareAudience::Cluster,
                    _ => ShareAudience::Node(node(other)),
                };
                let tools = if draws[1] == 0 {
                    "*".to_owned()
                } else {
                    format!("t{}", draws[1])
                };
                it.rules.push(share(server.as_str(), to, &tools));
                it.own.set_shares(shares(&it.rules));
            }
            7 => {
                if !it.rules.is_empty() {
                    let at = draws[2] as usize % it.rules.len();
                    it.rules.remove(at);
                }
                it.own.set_shares(shares(&it.rules));
            }
            8 => {
                it.own = LocalIndex::new(self.now << 8 | u64::from(n));
                it.own.set_shares(shares(&it.rules));
                for (server, offer) in &it.offers {
                    it.own.offer(server, Some(offer));
                }
            }
            9 => it.held = RemoteIndexes::default(),
            10 => {
                self.cut.insert((n.min(other), n.max(other)));
                it.held.handle_link_down(node(other), at(self.now));
            }
            _ => self.cut.clear(),
        }
        self.nodes[usize::from(n)].remember();
    }

    fn check_now(&self) {
        for (holder, owner) in pairs() {
            let held = &self.nodes[usize::from(holder)].held;
            let Some((held, _)) = held.get(node(owner), at(self.now)) else {
                continue;
            };
            let ever = &self.nodes[usize::from(owner)].ever[&holder];
            for (key, _) in held.entries() {
                let name = (
                    key.server.to_string(),
                    key.tool.as_deref().map(str::to_owned),
                );
                assert!(ever.contains(&name), "{name:?} was never shared");
            }
        }
    }

    fn check_settled(&self) {
        for (holder, owner) in pairs() {
            let (held, _) = self.nodes[usize::from(holder)]
                .held
                .get(node(owner), at(self.now))
                .unwrap();
            assert!(held.is_current(), "{holder} of {owner}: {:?}", held.error());
            let owner = &self.nodes[usize::from(owner)];
            let names = held.entries().map(|(key, _)| {
                (
                    key.server.to_string(),
                    key.tool.as_deref().map(str::to_owned),
                )
            });
            assert_eq!(names.collect::<BTreeSet<_>>(), owner.sees(holder));
            for (key, entry) in held.entries() {
                let RemoteEntry::Tool(tool) = entry else {
                    continue;
                };
                let offer = &owner.offers[&key.server].tools[key.tool.as_ref().unwrap()];
                assert_eq!(&*tool.definition, offer.definition);
            }
        }
    }
}

fn pairs() -> impl Iterator<Item = (u8, u8)> {
    let all = (0..NODES).flat_map(|a| (0..NODES).map(move |b| (a, b)));
    all.filter(|(a, b)| a != b)
}

/// PRJ-005, PRJ-007, FED-026: with lost and delayed messages, partitions and restarts; they never contain anything else.
#[test]
fn views_converge_to_exactly_what_is_shared() {
    for seed in 0..60 {
        eprintln!("seed {seed}");
        let mut network = Network::new(seed);
        for node in &mut network.nodes {
            node.remember();
        }
        for _ in 0..1_000 {
            if network.chance.one_in(12) {
                network.disturb();
            }
            network.step();
            network.check_now();
        }
        network.calm = true;
        network.cut.clear();
        // A pull that is under way may have to be given up first, and the next one waits its turn.
        for _ in 0..4_500 {
            network.step();
        }
        network.check_settled();
    }
}
