//! All classes of elements, and those of Click that this has not, with the reason.

use std::collections::HashMap;
use std::sync::OnceLock;

use crate::element::Class;
use crate::elements;
use crate::language::config::Classes;

/// All classes.
pub fn all() -> impl Iterator<Item = &'static Class> {
    elements::FAMILIES.iter().flat_map(|family| family.iter()).flat_map(|classes| classes.iter())
}

/// The class of a name.
pub fn find(name: &str) -> Option<&'static Class> {
    static BY_NAME: OnceLock<HashMap<&'static str, &'static Class>> = OnceLock::new();
    BY_NAME.get_or_init(|| all().map(|class| (class.name, class)).collect()).get(name).copied()
}

/// Classes that Click has and this has not, by the reason.
const MISSING: &[(&str, &[&str])] = &[
    (
        "it routes in a mesh of radios",
        &[
            "ACKResponder",
            "ACKResponder2",
            "ACKRetrySender",
            "ACKRetrySender2",
            "AiroInfo",
            "BottleneckMetric",
            "CheckGridHeader",
            "DSDVRouteTable",
            "DSRArpTable",
            "DSRRouteTable",
            "E2ELossMetric",
            "ETX2Metric",
            "ETXMetric",
            "EstimateRouterRegion",
            "FilterByGridHops",
            "FilterByRange",
            "FixDstLoc",
            "FixSrcLoc",
            "FloodingLocQuerier",
            "GridEncap",
            "GridGatewayInfo",
            "GridHeaderInfo",
            "GridHello",
            "GridLocationInfo",
            "GridLocationInfo2",
            "GridLogger",
            "GridProbeHandler",
            "GridProbeReplyReceiver",
            "GridProbeSender",
            "GridProxy",
            "GridRouteTable",
            "GridSRForwarder",
            "GridTxError",
            "HopcountMetric",
            "IncrementSeqNo",
            "LIRMetric",
            "LinkStat",
            "LinkTestReceiver",
            "LinkTester",
            "LinkTracker",
            "LocFromFile",
            "LocQueryResponder",
            "LocationTable",
            "LookupGeographicGridRoute",
            "LookupLocalGridRoute",
            "LookupLocalGridRoute2",
            "MovementSimulator",
            "PEP",
            "PacketLogger",
            "PacketLogger2",
            "PingPong",
            "PrintGrid",
            "RadioSim",
            "SendGridHello",
            "SendGridLRHello",
            "SetGridChecksum",
            "SimpleLocQuerier",
            "StripDSRHeader",
            "ThresholdMetric",
            "UnstripDSRHeader",
            "UpdateGridRoutes",
            "YarvisMetric",
        ],
    ),
    (
        "it is an experiment or test of Click itself",
        &[
            "BigHashMapTest",
            "BigintTest",
            "BitvectorTest",
            "BlockThread",
            "BufferConverter",
            "CLPTest",
            "CheckPacket",
            "ChuckCheck",
            "CompareBlock",
            "ComparePackets",
            "ConfParseTest",
            "CopyFlowID",
            "CopyTCPSeq",
            "CryptoTest",
            "DequeTest",
            "DupPath",
            "ErrorTest",
            "ForceICMP",
            "ForceIP",
            "ForceTCP",
            "ForceUDP",
            "FunctionTest",
            "HandlerTask",
            "HashTableTest",
            "HeapTest",
            "IndexTreesIPLookup",
            "JsonTest",
            "ListTest",
            "MTDieTest",
            "NeighborhoodTest",
            "NotifierTest",
            "NullTask",
            "PacketTest",
            "QueueThreadTest1",
            "QueueThreadTest2",
            "QueueYankTest",
            "Reframe",
            "RoundRobinUnqueue",
            "SchedOrderTest",
            "SortTest",
            "StoreUDPTimeSeqRecord",
            "TCPAck",
            "TCPBuffer",
            "TCPConn",
            "TCPDemux",
            "TCPReflector",
            "TaskThreadTest",
            "TimerTest",
            "TokenBucketTest",
            "ToyTCP",
            "UpstreamNotifier",
            "VectorTest",
            "WebGen",
        ],
    ),
    (
        "it handles frames of 802.11 radios",
        &[
            "AssociationRequester",
            "AssociationResponder",
            "AthdescDecap",
            "AthdescEncap",
            "AutoRateFallback",
            "AvailableRates",
            "BeaconScanner",
            "BeaconSource",
            "BeaconTracker",
            "EtherCount",
            "ExtraDecap",
            "ExtraEncap",
            "FilterFailures",
            "FilterPhyErr",
            "FilterTX",
            "FromHandler",
            "LinkTable",
            "MadwifiRate",
            "OpenAuthRequester",
            "OpenAuthResponder",
            "PacketStore",
            "Print80211",
            "PrintAiro",
            "PrintTXFeedback",
            "PrintWifi",
            "Prism2Decap",
            "Prism2Encap",
            "ProbeRequester",
            "ProbeResponder",
            "ProbeTXRate",
            "PushAnno",
            "RXStats",
            "RadiotapDecap",
            "RadiotapEncap",
            "ReadAnno",
            "SetNoAck",
            "SetRTS",
            "SetTXPower",
            "SetTXRate",
            "StationTable",
            "WepDecap",
            "WepEncap",
            "WifiDecap",
            "WifiDefrag",
            "WifiDupeFilter",
            "WifiEncap",
            "WifiFragment",
            "WifiSeq",
            "WirelessInfo",
        ],
    ),
    (
        "no one has written it for NetBricks yet",
        &[
            "DebugBridge",
            "EtherSpanTree",
            "FastTCPFlows",
            "FastUDPSourceIP6",
            "FromCapDump",
            "FromDAGDump",
            "FromFlanDump",
            "FromNLANRDump",
            "FromNetFlowSummaryDump",
            "PI",
            "ProgressBar",
            "RFC2507Comp",
            "RFC2507Decomp",
            "SnoopTCP",
            "StatelessTCPResponder",
            "ToIPFlowDumps",
        ],
    ),
    (
        "it belongs to the kernel module of Click",
        &[
            "CycleCountAccum",
            "FromUserDevice",
            "KernelHandlerProxy",
            "PerfCountAccum",
            "PerfCountInfo",
            "RoundTripCycleCount",
            "ScheduleLinux",
            "SetCycleCount",
            "SetPerfCount",
            "ThreadMonitor",
            "ToUserDevice",
        ],
    ),
    (
        "ports belong to the graph: use FromDevice and ToDevice",
        &[
            "DPDKInfo",
            "EnsureDPDKBuffer",
            "FromDPDKDevice",
            "FromRawSocket",
            "IPFlowRawSockets",
            "RawSocket",
            "ToDPDKDevice",
            "ToRawSocket",
        ],
    ),
    (
        "a configuration runs on one thread at a time",
        &["CPUQueue", "CPUSwitch", "SpinlockAcquire", "SpinlockInfo", "SpinlockPush", "SpinlockRelease"],
    ),
    ("it drives a radio", &["B8B10", "BIM", "CheckPattern", "Scramble", "SendPattern"]),
    ("it belongs to the simulator ns", &["FromSimDevice", "SimPacketAnalyzer", "ToSimDevice", "ToSimTrace"]),
    ("use Socket", &["FromSocket", "ToSocket"]),
    ("DES is a broken cipher: use IPsecAES", &["IPsecDES"]),
    ("a hash without a key protects nothing: use IPsecAuthHMACSHA1", &["IPsecAuthSHA1"]),
    ("it advises a tool that generates C++", &["DevirtualizeInfo"]),
    ("it changes the firewall of the machine", &["KernelFilter"]),
    ("it changes the routes of the machine", &["LinuxIPLookup"]),
    ("it holds nothing that another element reads", &["FlowInfo"]),
    ("it leaks packets: use Discard", &["DiscardNoFree"]),
    ("the program gives up its privileges by itself", &["ChangeUID"]),
    ("the routes of RadixIPsecLookup hold its associations", &["SATable"]),
    ("use Idle", &["SimpleIdle"]),
    ("use Print", &["PrintOld"]),
    ("use PrioSched", &["SimplePrioSched"]),
    ("use Queue", &["MSQueue"]),
    ("use RadixIPLookup", &["LookupIPRouteMP"]),
    ("use RoundRobinSched", &["SimpleRoundRobinSched"]),
    ("use a port of the graph instead", &["UMLSwitch"]),
];

/// Why a class that Click has is none here.
pub fn missing(name: &str) -> Option<&'static str> {
    if find(name).is_some() {
        return None;
    }
    MISSING.iter().find(|(_, names)| names.contains(&name)).map(|(why, _)| *why)
}

/// The classes that configurations may use.
pub struct Known;

impl Classes for Known {
    fn known(&self, class: &str) -> bool {
        find(class).is_some()
    }
    fn missing(&self, class: &str) -> Option<&'static str> {
        missing(class)
    }
}

#[cfg(test)]
mod tests {
    use super::{MISSING, all};
    use crate::testing::build;

    #[test]
    fn missing_classes_are_named_once_and_are_missing() {
        let mut seen = std::collections::HashSet::new();
        for name in MISSING.iter().flat_map(|(_, names)| names.iter()) {
            assert!(seen.insert(*name), "{name} is there twice");
            assert!(all().all(|class| class.name != *name), "{name} exists");
        }
    }

    #[test]
    fn errors_say_why_a_class_is_missing() {
        let errors = build("w :: WifiEncap(1)").errors;
        assert_eq!(errors[0], "config:1: unknown element class 'WifiEncap'");
        assert_eq!(errors[1], "config:1:   (Click has it: it handles frames of 802.11 radios)");
        let errors = build("Idle -> IPsecDES -> Discard").errors;
        assert_eq!(errors[0], "config:1: undeclared element 'IPsecDES'");
        assert_eq!(errors[1], "config:1:   (Click has it: DES is a broken cipher: use IPsecAES)");
        let errors = build("Idle -> NoSuch(1) -> Discard").errors;
        assert!(errors.iter().all(|line| !line.contains("Click has it")), "{errors:?}");
    }
}
