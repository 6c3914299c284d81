//! A loopback address that belongs to this process alone.
//!
//! The test runner gives every test a process of its own. All servers of a test listen on the test's own address, so
//! the port of a stopped server can only be taken again by the same test.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::ops::Range;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The owner of an address listens here for as long as it lives. No server uses this port.
const OWNER_PORT: u16 = 9_999;
/// Below the range that the system hands out to outgoing connections.
const PORTS: Range<u32> = 10_000..32_000;

/// One address of 127.0.0.0/8. It is free again when this is dropped or the process ends.
#[derive(Debug)]
pub struct Claim {
    ip: Ipv4Addr,
    _owner: TcpListener,
}

impl Claim {
    /// Takes an address that no other live process on this machine has claimed.
    pub fn take() -> Self {
        // Process ids differ, so the first address is nearly always free.
        let mut number = std::process::id();
        loop {
            let [_, high, middle, low] = number.to_be_bytes();
            // 127.0.0.0/9 stays free for everything else, 127.0.0.1 above all.
            let ip = Ipv4Addr::new(127, high | 128, middle, low);
            let ends = matches!(low, 0 | 255);
            if let (false, Ok(owner)) = (ends, TcpListener::bind((ip, OWNER_PORT))) {
                return Self { ip, _owner: owner };
            }
            number = number.wrapping_add(1);
        }
    }

    /// The address.
    pub fn ip(&self) -> Ipv4Addr {
        self.ip
    }
}

/// The address of this process.
pub fn own_ip() -> Ipv4Addr {
    static OWN: OnceLock<Claim> = OnceLock::new();
    OWN.get_or_init(Claim::take).ip()
}

/// A port on the address of this process that was not handed out before.
pub fn free_address() -> SocketAddr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Processes that run at the same time begin apart: some servers also use what is not theirs, by the port's number.
    let first = std::process::id().wrapping_mul(64);
    loop {
        let number = first.wrapping_add(NEXT.fetch_add(1, Relaxed)) % (PORTS.end - PORTS.start);
        let address = SocketAddr::from((own_ip(), (PORTS.start + number) as u16));
        if TcpListener::bind(address).is_ok() {
            return address;
        }
    }
}

/// For a listener of this process: the system chooses the port.
pub fn any_port() -> SocketAddr {
    (own_ip(), 0).into()
}

/// A page's shell script, with every server and client of 127.0.0.1 at the address of this process.
pub fn at_own_address(script: &str) -> String {
    let ip = own_ip().to_string();
    script.replace("127.0.0.1", &ip).replace("redis-cli -p", &format!("redis-cli -h {ip} -p"))
}

/// The set-up block of a page, which its reader runs in the `project`: what its `cargo` builds is built already, in
/// `programs`, and the folder of its own that it makes is `folder`.
pub fn set_up(block: &str, project: &str, programs: &Path, folder: &Path) -> String {
    let block = block.replace("$PWD/target/debug", &programs.display().to_string());
    format!("cargo() {{ :; }}; mktemp() {{ echo '{}'; }}; cd '{project}'\n{block}", folder.display())
}
