//! A network that nothing outside it sees: a bridge in a namespace of its own, and around it one namespace for
//! each machine. Multicast stays in it.

use std::net::Ipv4Addr;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use super::super::Program;

/// Where the bridge is, inside its namespace.
const BRIDGE: &str = "switch";
/// The network's addresses begin so.
const PREFIX: [u8; 2] = [10, 77];

/// Networks this process has made.
static MADE: AtomicU32 = AtomicU32::new(0);

/// Machines around a bridge. Dropping it takes all of it away.
#[derive(Debug)]
pub struct Network {
    name: String,
    machines: usize,
}

impl Network {
    /// A network of this many machines.
    ///
    /// # Errors
    /// Why this machine does not let us.
    ///
    /// # Panics
    /// For more machines than there are addresses.
    pub fn new(machines: usize) -> Result<Self, String> {
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("mgp{}-{number}", std::process::id());
        let mut network = Self { name, machines: 0 };
        let switch = network.switch();
        ip(&["netns", "add", &switch])?;
        let inside = ["-n", &switch, "link"];
        let on_switch = |words: &[&str]| ip(&[&inside, words].concat());
        on_switch(&["add", BRIDGE, "type", "bridge", "mcast_snooping", "0"])?;
        on_switch(&["set", BRIDGE, "up"])?;
        for machine in 0..machines {
            network.machines += 1;
            network.plug(machine)?;
        }
        Ok(network)
    }

    fn switch(&self) -> String {
        format!("{}-switch", self.name)
    }

    fn namespace(&self, machine: usize) -> String {
        format!("{}-{machine}", self.name)
    }

    fn plug(&self, machine: usize) -> Result<(), String> {
        let (switch, namespace) = (self.switch(), self.namespace(machine));
        let port = port(machine);
        ip(&["netns", "add", &namespace])?;
        let pair = ["link", "add", &port, "netns", &switch, "type", "veth"];
        ip(&[&pair[..], &["peer", "name", "lan", "netns", &namespace]].concat())?;
        ip(&["-n", &switch, "link", "set", &port, "master", BRIDGE, "up"])?;
        let address = format!("{}/16", self.address(machine));
        ip(&["-n", &namespace, "addr", "add", &address, "dev", "lan"])?;
        ip(&["-n", &namespace, "link", "set", "lo", "up"])?;
        ip(&[
            "-n",
            &namespace,
            "link",
            "set",
            "lan",
            "up",
            "multicast",
            "on",
        ])?;
        ip(&["-n", &namespace, "route", "add", "default", "dev", "lan"])
    }

    /// The address of a machine.
    ///
    /// # Panics
    /// Beyond 65,000 machines.
    #[must_use]
    pub fn address(&self, machine: usize) -> Ipv4Addr {
        let number = u16::try_from(machine + 1).expect("as many as there are addresses");
        let [high, low] = number.to_be_bytes();
        Ipv4Addr::new(PREFIX[0], PREFIX[1], high, low)
    }

    /// What stands before `mgp` and its arguments to run it on a machine.
    #[must_use]
    pub fn on(&self, machine: usize) -> Vec<String> {
        let ours = Program::ours("mgp", [""; 0]);
        self.running(machine, &ours.command)
    }

    /// What stands before the arguments of a program to run it on a machine.
    #[must_use]
    pub fn running(&self, machine: usize, program: &str) -> Vec<String> {
        let namespace = self.namespace(machine);
        let words = ["ip", "netns", "exec", &namespace, program];
        words.map(str::to_owned).to_vec()
    }

    /// Pulls the cable of a machine.
    ///
    /// # Panics
    /// When `ip` fails.
    pub fn cut(&self, machine: usize) {
        self.set(machine, "down");
    }

    /// Puts it back.
    ///
    /// # Panics
    /// When `ip` fails.
    pub fn heal(&self, machine: usize) {
        self.set(machine, "up");
    }

    fn set(&self, machine: usize, state: &str) {
        let set = ["-n", &self.switch(), "link", "set", &port(machine), state];
        ip(&set).expect("the network is ours");
    }

    /// Makes the way from a machine as bad as `tc netem` is told, `delay 50ms loss 5%` say; both ways when both
    /// machines' are.
    ///
    /// # Panics
    /// When `tc` fails.
    pub fn worsen(&self, machine: usize, netem: &str) {
        let namespace = self.namespace(machine);
        let mut tc = Command::new("tc");
        tc.args([
            "-n", &namespace, "qdisc", "replace", "dev", "lan", "root", "netem",
        ]);
        let told = tc.args(netem.split(' ')).output().expect("tc runs");
        assert!(
            told.status.success(),
            "{}",
            String::from_utf8_lossy(&told.stderr)
        );
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for machine in 0..self.machines {
            let _ = ip(&["netns", "del", &self.namespace(machine)]);
        }
        let _ = ip(&["netns", "del", &self.switch()]);
    }
}

/// The bridge's end of a machine's cable.
fn port(machine: usize) -> String {
    format!("port{machine}")
}

fn ip(args: &[&str]) -> Result<(), String> {
    let told = Command::new("ip").args(args).output();
    let told = told.map_err(|e| format!("ip: {e}"))?;
    match told.status.success() {
        true => Ok(()),
        false => Err(format!(
            "ip {}: {}",
            args.join(" "),
            String::from_utf8_lossy(&told.stderr).trim()
        )),
    }
}
