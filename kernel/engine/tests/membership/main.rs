//! What the membership protocol promises, on a simulated network.

mod network;

use network::Network;

/// PRJ-007, FED-022: at three nodes a death is seen by both others within three seconds, whenever it comes.
#[test]
fn a_death_is_seen_within_three_seconds() {
    for seed in 0..40 {
        let mut network = Network::new(3, seed);
        for n in 0..3 {
            network.start(n, n.checked_sub(1));
        }
        network.run(5_000 + seed * 37);
        assert_eq!(
            [network.known(0), network.known(1), network.known(2)],
            [2, 2, 2],
            "seed {seed}"
        );
        network.kill(1);
        network.run(3_000);
        assert_eq!(network.believers(1), 0, "seed {seed}");
        assert_eq!(network.believers(0), 1, "seed {seed}");
        network.start(1, Some(0));
        network.run(7_000);
        assert_eq!(network.believers(1), 2, "seed {seed}: it came back");
    }
}

/// FED-025: no false death in ten minutes at a loss of five in a hundred.
#[test]
fn nobody_is_dead_because_packets_are_lost() {
    for seed in 0..5 {
        let mut network = Network::new(5, seed);
        for n in 0..5 {
            network.start(n, n.checked_sub(1));
        }
        network.run(10_000);
        network.loss = 50;
        network.run(600_000);
        assert_eq!(network.false_deaths, 0, "seed {seed}");
        assert!((0..5).all(|n| network.known(n) == 4), "seed {seed}");
    }
}

/// Nodes that start one after the other, each knowing one, all come to know each other.
#[test]
fn nodes_that_start_together_find_each_other() {
    let mut network = Network::new(60, 7);
    for n in 0..60_usize {
        network.start(n, n.checked_sub(1));
        network.run(20);
    }
    network.run(20_000);
    let known: Vec<_> = (0..60).map(|n| network.known(n)).collect();
    assert!(known.iter().all(|known| *known == 59), "{known:?}");
}
