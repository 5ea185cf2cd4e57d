//! Networks of IP addresses, such as `10.0.0.0/8`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A list of networks. An empty list contains no address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Networks(Vec<Network>);

/// A network. IPv4 addresses are stored as IPv4-mapped IPv6 addresses (RFC 4291, section 2.5.5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Network {
    address: u128,
    /// Length of the prefix: 0 to 128 bits.
    prefix_bits: u32,
}

/// The reason why a text isn't a network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a network: write an address, or one with the length of its prefix and no bits after it, such as \"10.0.0.0/8\", \
     \"192.0.2.1\" or \"2001:db8::/32\""
)]
pub struct NetworkError(String);

fn bits_of(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().into(),
        IpAddr::V6(address) => address.into(),
    }
}

impl Network {
    fn parse(text: &str) -> Option<Self> {
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().ok()?;
        let (bits, before) = if address.is_ipv4() { (32, 96) } else { (128, 0) };
        let length = match length {
            Some(length) if length.bytes().all(|byte| byte.is_ascii_digit()) => length.parse().ok()?,
            Some(_) => return None,
            None => bits,
        };
        let prefix_bits = before + length;
        let network = Self { address: bits_of(address), prefix_bits };
        // A bit that is set after the prefix is a mistake: either the address or the prefix is wrong.
        (length <= bits && network.address & !network.mask() == 0).then_some(network)
    }

    fn mask(self) -> u128 {
        u128::MAX.checked_shl(128 - self.prefix_bits).unwrap_or(0)
    }
}

impl Networks {
    /// Reads a list of addresses and networks.
    ///
    /// # Errors
    /// The first text that is neither an address nor a network.
    pub fn parse(texts: &[impl AsRef<str>]) -> Result<Self, NetworkError> {
        let network = |text: &str| Network::parse(text).ok_or_else(|| NetworkError(text.to_owned()));
        texts.iter().map(|text| network(text.as_ref())).collect::<Result<_, _>>().map(Self)
    }

    /// `true` if the list is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// `true` if an address is in one of the networks.
    pub fn contains(&self, address: IpAddr) -> bool {
        let bits = bits_of(address);
        self.0.iter().any(|network| bits & network.mask() == network.address)
    }
}

/// A number for a client's address, used for fair queueing: the IPv4 address, or the first 64 bits of the IPv6
/// address, because one customer usually has all addresses of this prefix (RFC 6177).
pub fn source_of(address: IpAddr) -> u64 {
    match address.to_canonical() {
        IpAddr::V4(address) => u64::from(u32::from(address)),
        IpAddr::V6(address) => (u128::from(address) >> 64) as u64,
    }
}

/// Formats the address or /64 network for which [`source_of`] returned `source`.
pub fn network_of(source: u64) -> String {
    match u32::try_from(source) {
        Ok(bits) => Ipv4Addr::from(bits).to_string(),
        Err(_) => format!("{}/64", Ipv6Addr::from(u128::from(source) << 64)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_in_networks() {
        let check = |network: &str, inside: &[&str], outside: &[&str]| {
            let networks = Networks::parse(&[network]).unwrap();
            for (texts, expected) in [(inside, true), (outside, false)] {
                for text in texts {
                    assert_eq!(networks.contains(text.parse().unwrap()), expected, "{text} in {network}");
                }
            }
        };
        check("10.0.0.0/8", &["10.0.0.0", "10.255.255.255", "::ffff:10.1.2.3"], &["11.0.0.0", "::a00:1"]);
        check("192.0.2.1", &["192.0.2.1", "::ffff:192.0.2.1"], &["192.0.2.2"]);
        check("0.0.0.0/0", &["192.0.2.1"], &["::1", "2001:db8::1"]);
        check("::/0", &["192.0.2.1", "2001:db8::1"], &[]);
        check("2001:db8::/32", &["2001:db8::1", "2001:db8:ffff::"], &["2001:db9::", "10.0.0.1"]);
        check("::ffff:10.0.0.0/104", &["10.1.2.3"], &["11.1.2.3"]);
        assert!(!Networks::default().contains("::1".parse().unwrap()));
    }

    #[test]
    fn texts_that_are_no_networks() {
        for text in
            ["", "10.0.0.0/33", "::/129", "10.0.0.1/8", "10/8", "10.0.0.0/", "10.0.0.0/+8", "host", "::1%lo"]
        {
            assert_eq!(Networks::parse(&[text]), Err(NetworkError(text.to_owned())));
        }
    }

    #[test]
    fn addresses_of_one_customer_are_one_source() {
        let source = |text: &str| source_of(text.parse().unwrap());
        assert_eq!(source("192.0.2.1"), source("::ffff:192.0.2.1"));
        assert_ne!(source("192.0.2.1"), source("192.0.2.2"));
        assert_eq!(source("2001:db8::1"), source("2001:db8::ffff:1"));
        assert_ne!(source("2001:db8::1"), source("2001:db8:0:1::1"));
        assert_eq!(network_of(source("192.0.2.1")), "192.0.2.1");
        assert_eq!(network_of(source("2001:db8:0:1::1")), "2001:db8:0:1::/64");
    }
}
