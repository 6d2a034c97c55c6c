//! A network that nothing outside it sees: a bridge in a namespace of its own, and around it one namespace for
//! each machine. Multicast stays in it.

mod cable;

use std::net::Ipv4Addr;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use super::super::Program;
use super::super::process::Process;

pub use self::cable::BadCable;

/// Where the bridge is, inside its namespace.
const BRIDGE: &str = "switch";
/// The network's addresses begin so.
const PREFIX: [u8; 2] = [10, 77];

/// Networks this process has made.
static MADE: AtomicU32 = AtomicU32::new(0);

/// Machines around a bridge. Dropping it takes all of it away.
#[derive(Debug)]
pub struct Network {
    /// What is in the place of cables.
    cables: Vec<Process>,
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
        let mut network = Self {
            cables: Vec::new(),
            name,
            machines: 0,
        };
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

    /// Machines that are set apart reach those that are not, and not each other.
    ///
    /// # Panics
    /// When `ip` fails.
    pub fn set_apart(&self, machine: usize, apart: bool) {
        let (switch, port) = (self.switch(), port(machine));
        let state = if apart { "on" } else { "off" };
        let set = ["-n", &switch, "link", "set", &port, "type", "bridge_slave"];
        ip(&[&set[..], &["isolated", state]].concat()).expect("the network is ours");
    }

    fn set(&self, machine: usize, state: &str) {
        let set = ["-n", &self.switch(), "link", "set", &port(machine), state];
        ip(&set).expect("the network is ours");
    }

    /// Makes the way from a machine bad; both ways are when both machines' are.
    ///
    /// # Panics
    /// When a command fails that [`Network::can_worsen`] tried.
    pub async fn worsen(&mut self, machine: usize, cable: BadCable) {
        if self.netem(machine, cable).is_err() {
            let taken_out = self.take_out(machine).expect("the network is ours");
            let [port, side] = taken_out;
            let process = cable.between(&self.switch(), &port, &side).await;
            self.cables.push(process);
        }
    }

    /// Whether the system has what [`Network::worsen`] needs: `tc netem`, or Python in its place.
    ///
    /// # Errors
    /// Why not.
    pub fn can_worsen(&self) -> Result<&'static str, String> {
        let Err(netem) = self.netem(0, BadCable::default()) else {
            return Ok("tc netem");
        };
        let python = run("python3", &["-c", "import socket; socket.AF_PACKET"]);
        let told = |python| format!("{netem}; {python}");
        python
            .map(|()| "a program in the cable's place")
            .map_err(told)
    }

    fn netem(&self, machine: usize, cable: BadCable) -> Result<(), String> {
        let (namespace, cable) = (self.namespace(machine), cable.to_string());
        let mut words = vec!["-n", &namespace, "qdisc", "replace", "dev", "lan", "root"];
        words.push("netem");
        words.extend(cable.split(' '));
        run("tc", &words)
    }

    /// Takes a machine's port out of the bridge, and puts another cable's end in its place: gives the two ends
    /// between which somebody has to carry what comes.
    fn take_out(&self, machine: usize) -> Result<[String; 2], String> {
        let (switch, namespace) = (self.switch(), self.namespace(machine));
        let [port, side, slot] = [
            port(machine),
            format!("side{machine}"),
            format!("slot{machine}"),
        ];
        // Packets that the system would only take apart at the end of the cable are too long for it.
        ip(&["-n", &namespace, "link", "set", "lan", "gso_max_segs", "1"])?;
        let on_switch = |words: &[&str]| ip(&[&["-n", &switch, "link"], words].concat());
        on_switch(&["add", &side, "type", "veth", "peer", "name", &slot])?;
        on_switch(&["set", &port, "nomaster"])?;
        on_switch(&["set", &slot, "master", BRIDGE, "up"])?;
        on_switch(&["set", &side, "up"])?;
        Ok([port, side])
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.cables.clear();
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
    run("ip", args)
}

fn run(program: &str, args: &[&str]) -> Result<(), String> {
    let told = Command::new(program).args(args).output();
    let told = told.map_err(|e| format!("{program}: {e}"))?;
    if told.status.success() {
        Ok(())
    } else {
        Err(format!(
            "{program} {}: {}",
            args.join(" "),
            String::from_utf8_lossy(&told.stderr).trim()
        ))
    }
}
