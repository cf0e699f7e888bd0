//! Election of the primary of a group.

use crate::error::GroupError;

/// A member that can be elected.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub(crate) address: String,
    pub(crate) identity: Option<String>,
}

/// Elects the primary. Returns its number and the reason. The primary is the user's choice,
/// otherwise the member with the smallest identity in byte order. Members without an identity come
/// last, by address. The order of the members has no influence.
pub(crate) fn elect(
    candidates: &[Candidate],
    choice: Option<usize>,
) -> Result<(usize, String), GroupError> {
    if let Some(place) = choice {
        let most = candidates.len() - 1;
        return match place <= most {
            true => Ok((place, format!("primary={place}"))),
            false => {
                let what = format!("primary={place}: the members have the numbers 0 to {most}");
                Err(GroupError(what))
            }
        };
    }
    let key = |c: &Candidate| {
        (c.identity.is_none(), c.identity.clone().unwrap_or_else(|| c.address.clone()))
    };
    let place = (0..candidates.len()).min_by_key(|&i| key(&candidates[i])).unwrap_or(0);
    let (_, id) = key(&candidates[place]);
    Ok((place, format!("smallest id {id}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(address: &str, identity: Option<&str>) -> Candidate {
        Candidate { address: address.into(), identity: identity.map(str::to_owned) }
    }

    // Goal: every order of the members results in the same primary for the same reason; the domain
    // of a PCI address is compared too.
    #[test]
    fn primary_is_independent_of_order() {
        let members = [
            candidate("xdp:eth0", Some("0001:03:00.0")),
            candidate("xdp:eth1", Some("0000:82:00.0")),
            candidate("tap:a", None),
        ];
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let listed: Vec<_> = order.iter().map(|&i: &usize| members[i].clone()).collect();
            let (place, why) = elect(&listed, None).unwrap();
            assert_eq!(listed[place].address, "xdp:eth1", "{order:?}");
            assert_eq!(why, "smallest id 0000:82:00.0");
        }
    }

    // Goal: the user's choice takes precedence; a number out of range is rejected with the valid
    // numbers.
    #[test]
    fn the_user_can_choose() {
        let members = [candidate("tap:a", None), candidate("tap:b", None)];
        assert_eq!(elect(&members, Some(1)).unwrap(), (1, "primary=1".to_owned()));
        let text = elect(&members, Some(2)).unwrap_err().to_string();
        assert_eq!(text, "primary=2: the members have the numbers 0 to 1");
    }
}
