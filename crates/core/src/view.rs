//! The view: a packet with the proof of its headers, lent to a user function for one call.

use std::hint::cold_path;
use std::net::IpAddr;

use netbricks_packet::rewrite::{RewriteError, Shape};
use netbricks_packet::stack::{Header, Holds, Knows, Stack, Usual};
use netbricks_packet::{FlowKey, Ip};

use netbricks_buffer::{Annotations, Bytes};
use netbricks_tables::Encode;

use crate::annotation::Annotation;
use crate::context::{Context, last_arrival};
use crate::reason::Edge;

/// A packet's bytes and its known headers, without the packet.
///
/// So no code with a view can send, swap, resize or keep the packet itself.
pub struct View<'v, S> {
    pub(crate) data: &'v mut [u8],
    pub(crate) annotations: Annotations<'v>,
    pub(crate) stack: &'v S,
    pub(crate) cx: &'v mut Context,
    /// The packet's slot in the batch.
    pub(crate) slot: usize,
    /// Whether bytes that made the frame a usual one were lent for writing.
    pub(crate) reshaped: bool,
}

impl<'v, S> View<'v, S> {
    #[inline(always)]
    pub(crate) fn new(bytes: &'v mut Bytes<'_>, stack: &'v S, cx: &'v mut Context, slot: usize) -> Self {
        let (data, annotations) = bytes.parts();
        Self { data, annotations, stack, cx, slot, reshaped: false }
    }

    /// The value that was annotated under this name, by an earlier function of the graph or earlier in this
    /// one.
    ///
    /// `None` where there is none.
    #[inline]
    pub fn annotation<T: Encode>(&self, slot: Annotation<T>) -> Option<T> {
        slot.read(&self.annotations)
    }

    /// Removes an annotation from the packet, whichever function made it.
    #[inline]
    pub fn take_annotation<T: Encode>(&mut self, slot: Annotation<T>) {
        if self.annotation(slot).is_some() {
            slot.clear(&mut self.annotations);
        }
    }

    /// Annotates the packet, for later functions in the graph that ask for the same name.
    #[inline]
    pub fn annotate<T: Encode>(&mut self, slot: Annotation<T>, value: T) {
        slot.write(&mut self.annotations, &value);
    }
}

impl<S: Stack> View<'_, S> {
    /// The innermost header, which the last `parse::<H>()` before this operator found.
    ///
    /// Its type follows from `H`:
    ///
    /// | `H` | `header()` | `header_mut()` |
    /// |---|---|---|
    /// | `Ip`, `Ipv4`, `Ipv6` | `IpRef`, `Ipv4Ref`, `Ipv6Ref` | `IpMut`, `Ipv4Mut`, `Ipv6Mut` |
    /// | `Link` | `LinkRef` | `LinkMut` |
    /// | `Tcp` | `TcpRef` | `TcpMut` |
    /// | `Ethernet`, `Vlan`, `Udp`, `Arp`, `Icmpv4`, `Icmpv6`, … | `&H` | `&mut H` |
    ///
    /// All are in [`packet`](crate::packet), with the fields that they read and set.
    #[inline(always)]
    pub fn header(&self) -> <S::Top as Header>::Ref<'_> {
        let (at, facts) = self.stack.top();
        S::Top::view(&self.data[at..self.stack.end()], facts)
    }
    /// The innermost header, for writing its plain fields.
    #[inline(always)]
    pub fn header_mut(&mut self) -> <S::Top as Header>::Mut<'_> {
        let (at, facts) = self.stack.top();
        let end = self.stack.end();
        self.lends::<S::Top>(at);
        S::Top::view_mut(&mut self.data[at..end], facts)
    }
    /// Notes that header `H` at this offset is lent for writing: the frame may no longer be a usual one.
    #[inline(always)]
    fn lends<H: Header>(&mut self, at: usize) {
        if Usual::is_shaped_by::<H>(at) {
            self.reshaped = true;
        }
    }
    #[inline(always)]
    fn limit(&self) -> usize {
        self.stack.limit(self.data.len())
    }
    /// The payload of the innermost header.
    ///
    /// It ends where the header's length field said when it was parsed: padding is not payload.
    #[inline(always)]
    pub fn payload(&self) -> &[u8] {
        &self.data[self.stack.end()..self.limit()]
    }
    /// The payload, for writing. Checksums over it are not touched.
    #[inline(always)]
    pub fn payload_mut(&mut self) -> &mut [u8] {
        let limit = self.limit();
        if self.stack.end() < Usual::BYTES {
            self.reshaped = true;
        }
        &mut self.data[self.stack.end()..limit]
    }
    /// All bytes of the frame.
    #[inline(always)]
    pub fn frame(&self) -> &[u8] {
        self.data
    }
    /// Bytes that the frame had on the wire, without FCS.
    ///
    /// This is more than [`frame`](Self::frame) has where a capture holds only the frame's beginning.
    #[inline(always)]
    pub fn frame_len(&self) -> usize {
        self.data.len() + self.missing()
    }
    /// The number of bytes at the end of the frame that a capture did not keep.
    ///
    /// A checksum over them cannot be verified, and a payload that reaches the frame's end may continue in
    /// them.
    #[inline(always)]
    pub fn missing(&self) -> usize {
        if !self.cx.cut {
            return 0;
        }
        cold_path();
        self.annotations.missing()
    }
    /// The time (ns, the graph's clock), which is the same for all packets of a batch.
    #[inline(always)]
    pub fn now(&self) -> u64 {
        self.cx.now()
    }

    /// The packet's own time (ns): when it arrived, or when a function that held it let it go.
    ///
    /// It is [`now`](Self::now), or later within that millisecond: a replayed capture's arrivals of one
    /// millisecond share a time, and differ here. Meters measure by it.
    #[inline(always)]
    pub fn arrived_at(&self) -> u64 {
        let now = self.cx.now();
        self.annotations.received_at().clamp(now, last_arrival(now))
    }

    /// Sends a new packet of `len` zero bytes, filled by `write`, on another edge.
    ///
    /// Its time is this packet's. If a later packet of the batch makes the function panic, the answer is not
    /// sent.
    ///
    /// `false` where it cannot be sent. The answer is then counted as created and dropped. The reason is
    /// [`PoolExhausted`](crate::DropReason::PoolExhausted) where no buffer is free, and
    /// [`TooBig`](crate::DropReason::TooBig) where none is large enough. It is
    /// [`RateLimited`](crate::DropReason::RateLimited) where this packet already has
    /// [`ANSWERS_LIMIT`](crate::context::ANSWERS_LIMIT) answers.
    pub fn reply(&mut self, edge: Edge, len: usize, write: impl FnOnce(&mut [u8], &View<'_, S>)) -> bool {
        let Some(mut answer) = self.cx.pool().allocate(len) else {
            self.cx.lost_without_buffer(len);
            return false;
        };
        answer.set_received_at(self.annotations.received_at());
        write(answer.data_mut(), self);
        self.cx.answer(self.slot, edge, answer)
    }
}

/// Methods that need the IP header, wherever it is in the stack.
pub trait IpRewrite<I> {
    /// The 5-tuple of the IP packet.
    fn flow_key(&self) -> FlowKey;
    /// Whether a capture left out the end of the IP packet.
    fn is_cut_off(&self) -> bool;
    /// The flow that the packet [belongs to](FlowKey::related): its own, except for fragments and ICMP
    /// errors.
    fn related_flow(&self) -> FlowKey;
    /// Exchanges the Source and Destination Address fields, so that the packet goes back.
    ///
    /// Changes a checksum only where it covers one of the two: see
    /// [`PseudoHeader`](netbricks_packet::PseudoHeader).
    ///
    /// # Errors
    /// An authentication header covers the addresses, or the checksum cannot be found.
    fn exchange_addresses(&mut self) -> Result<(), RewriteError>;
    /// Sets the Source Address field, and every checksum that covers it (RFC 1624).
    ///
    /// # Errors
    /// The address is of the other IP version, an authentication header covers it, or the checksum cannot be
    /// found.
    fn set_source(&mut self, address: IpAddr) -> Result<(), RewriteError>;
    /// Sets the Destination Address field, and every checksum that covers it (RFC 1624).
    ///
    /// On a source route the field names the next stop, and the final destination stays: see
    /// [`PseudoHeader`](netbricks_packet::PseudoHeader).
    ///
    /// # Errors
    /// As [`set_source`](Self::set_source).
    fn set_destination(&mut self, address: IpAddr) -> Result<(), RewriteError>;
    /// Sets the TCP, UDP or SCTP source port, and every checksum that covers it.
    ///
    /// # Errors
    /// The packet has no ports: another protocol, or a later fragment.
    fn set_source_port(&mut self, port: u16) -> Result<(), RewriteError>;
    /// Sets the TCP, UDP or SCTP destination port, and every checksum that covers it.
    ///
    /// # Errors
    /// As [`set_source_port`](Self::set_source_port).
    fn set_destination_port(&mut self, port: u16) -> Result<(), RewriteError>;
}

impl<S: Stack + Holds<Ip, I>, I> IpRewrite<I> for View<'_, S> {
    #[inline(always)]
    fn flow_key(&self) -> FlowKey {
        let (at, end, facts) = self.stack.locate();
        FlowKey::at(self.data, at, end, self.stack.payload_end(), facts)
    }
    #[inline(always)]
    fn is_cut_off(&self) -> bool {
        if self.missing() == 0 {
            return false;
        }
        let (at, end, facts) = self.stack.locate();
        crate::operators::is_cut_off(Ip::view(&self.data[at..end], facts), at, self.data.len())
    }
    #[inline(always)]
    fn related_flow(&self) -> FlowKey {
        let (at, end, facts) = self.stack.locate();
        FlowKey::related_at(self.data, at, end, self.stack.payload_end(), facts)
    }
    fn exchange_addresses(&mut self) -> Result<(), RewriteError> {
        let (shape, ip) = rewritten(self)?;
        shape.exchange_addresses(ip)
    }
    fn set_source(&mut self, address: IpAddr) -> Result<(), RewriteError> {
        let (shape, ip) = rewritten(self)?;
        shape.set_source(ip, address)
    }
    fn set_destination(&mut self, address: IpAddr) -> Result<(), RewriteError> {
        let (shape, ip) = rewritten(self)?;
        shape.set_destination(ip, address)
    }
    fn set_source_port(&mut self, port: u16) -> Result<(), RewriteError> {
        let (shape, ip) = rewritten(self)?;
        shape.set_source_port(ip, port)
    }
    fn set_destination_port(&mut self, port: u16) -> Result<(), RewriteError> {
        let (shape, ip) = rewritten(self)?;
        shape.set_destination_port(ip, port)
    }
}

/// The IP packet, and the places in it that a rewrite changes.
///
/// These include a checksum that is left to a device.
fn rewritten<'a, S: Stack + Holds<Ip, I>, I>(
    view: &'a mut View<'_, S>,
) -> Result<(Shape, &'a mut [u8]), RewriteError> {
    let (at, end, facts) = view.stack.locate();
    view.lends::<Ip>(at);
    let limit = view.stack.payload_end().min(view.data.len());
    let offload = view.annotations.offload();
    let unverified = view.annotations.missing() > 0 || view.annotations.is_length_unstated();
    let ip = &mut view.data[at..limit];
    let shape = match Shape::of(ip) {
        // Its length fields state more bytes than are present, for a reason that its parse knew.
        Err(_) if unverified => Shape::known(ip, facts, end - at, limit - at),
        shape => shape?,
    };
    let start = usize::from(offload.checksum_start).checked_sub(at).filter(|_| offload.needs_checksum);
    let shape = start.map_or(shape, |start| shape.left_to_device(start, offload.checksum_offset.into()));
    Ok((shape, ip))
}

/// Access to outer headers: `p.outer::<Ethernet>()`. A trait, so that the position is inferred.
pub trait Enclosing<I> {
    /// The header, for reading.
    fn outer<H: Header>(&self) -> H::Ref<'_>
    where
        Self: Sees<H, I>;
    /// The header, for writing its plain fields.
    fn outer_mut<H: Header>(&mut self) -> H::Mut<'_>
    where
        Self: Sees<H, I>;
}

/// As `Holds`, for a view. So an error message names the header rather than the whole stack.
#[diagnostic::on_unimplemented(
    message = "`{H}` was not parsed before this operator",
    label = "no `.parse::<{H}>()` on the way here"
)]
pub trait Sees<H: Header, I> {
    #[doc(hidden)]
    fn place(&self) -> (usize, usize, H::Facts);
}

#[diagnostic::do_not_recommend]
impl<S: Holds<H, I>, H: Header, I> Sees<H, I> for View<'_, S> {
    #[inline(always)]
    fn place(&self) -> (usize, usize, H::Facts) {
        self.stack.locate()
    }
}

impl<S: Stack, I> Enclosing<I> for View<'_, S> {
    #[inline(always)]
    fn outer<H: Header>(&self) -> H::Ref<'_>
    where
        Self: Sees<H, I>,
    {
        let (at, end, facts) = self.place();
        H::view(&self.data[at..end], facts)
    }
    #[inline(always)]
    fn outer_mut<H: Header>(&mut self) -> H::Mut<'_>
    where
        Self: Sees<H, I>,
    {
        let (at, end, facts) = self.place();
        self.lends::<H>(at);
        H::view_mut(&mut self.data[at..end], facts)
    }
}

/// Access to metadata from earlier operators: `p.get::<FlowId>()`.
pub trait Metadata<I> {
    /// The stack that holds the metadata.
    type Stack;
    /// The value.
    fn get<M>(&self) -> &M
    where
        Self::Stack: Knows<M, I>;
}

impl<S, I> Metadata<I> for View<'_, S> {
    type Stack = S;
    #[inline(always)]
    fn get<M>(&self) -> &M
    where
        S: Knows<M, I>,
    {
        self.stack.value()
    }
}
