//! Verification of helper calls.

use super::range::Range;
use super::state::{Reg, State};
use super::{Verifier, read};
use crate::helper::{Arg, Helper, Returns};
use crate::insn::Insn;
use crate::map::MapKind;

impl Verifier<'_> {
    pub(super) fn call(&mut self, s: &mut State, insn: Insn) -> Result<(), String> {
        if insn.src != 0 {
            return Err(format!("a call of kind {} is not supported", insn.src));
        }
        let helper = Helper::find(insn.imm)?;
        let mut map = None;
        for (i, arg) in helper.args.iter().enumerate() {
            let reg = i + 1;
            self.argument(s, helper, reg, *arg, &mut map)
                .map_err(|why| format!("{}: r{reg}: {why}", helper.name))?;
        }
        if helper.moves_packet {
            s.forget_packet();
        }
        for reg in 1..=5 {
            s.regs[reg] = Reg::Uninit;
        }
        s.regs[0] = match (helper.returns, map) {
            (Returns::Value, Some(map)) => Reg::MaybeValue { map, id: s.new_id() },
            (Returns::Small, _) => Reg::scalar(Range::up_to(0xffff)),
            _ => Reg::ANY,
        };
        Ok(())
    }

    fn argument(
        &mut self,
        s: &mut State,
        helper: &Helper,
        reg: usize,
        arg: Arg,
        map: &mut Option<u32>,
    ) -> Result<(), String> {
        let value = read(s, reg)?;
        let def = map.and_then(|map| self.maps.get(map as usize));
        match arg {
            Arg::Context if value == Reg::Ctx => Ok(()),
            Arg::Context => Err(format!("must be the context, not {}", value.name())),
            Arg::Number => match value {
                Reg::Scalar { .. } => Ok(()),
                other => Err(format!("must be a number, not {}", other.name())),
            },
            Arg::Map { devices } => {
                let Reg::Map { number } = value else {
                    return Err(format!("must be a map, not {}", value.name()));
                };
                let def = &self.maps[number as usize];
                if (def.kind == MapKind::Devmap) != devices {
                    let kind = def.kind.name();
                    return Err(format!(
                        "map '{}' is a {kind}, which this helper does not support",
                        def.name
                    ));
                }
                if helper.writes_map && def.readonly {
                    return Err(format!("map '{}' is read-only", def.name));
                }
                *map = Some(number);
                Ok(())
            }
            Arg::Key | Arg::Value => {
                let def = def.ok_or("the map is not known at this point")?;
                let size = if arg == Arg::Key { def.key_size } else { def.value_size };
                self.helper_memory(s, value, (size, size), false)
            }
            Arg::Memory { write } => {
                let sizes = sizes(s, reg + 1)?;
                if sizes.1 == 0 {
                    return Ok(());
                }
                self.helper_memory(s, value, sizes, write)
            }
            Arg::MemoryOrNull => {
                let sizes = sizes(s, reg + 1)?;
                if sizes.1 == 0 {
                    return Ok(());
                }
                self.helper_memory(s, value, sizes, false)
            }
        }
    }
}

/// Bounds of the size in register `reg`; fails unless it is a number of at most 2^16.
fn sizes(s: &State, reg: usize) -> Result<(u32, u32), String> {
    match s.regs[reg] {
        Reg::Scalar { range, .. } if range.max <= 1 << 16 => {
            Ok((range.min as u32, range.max as u32))
        }
        Reg::Scalar { range, .. } => {
            Err(format!("its size in r{reg} may be {:#x}: it must be bounded", range.max))
        }
        other => Err(format!("its size in r{reg} is {}", other.name())),
    }
}
