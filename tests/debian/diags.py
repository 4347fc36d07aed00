#!/usr/bin/python3
"""diags.py: infiniband-diags. What looks at a device (ibstat, ibstatus) is compared with what verbs say; what speaks management datagrams has to say that it finds no port for them."""
import re

import place


def body(a, b):
    place.needs("ibstat", "ibstatus", "ibaddr", "ibv_devinfo")
    said = dict(re.findall(r"(?m)^\s*(\w+):\s+(\S+)", a.run(f"ibv_devinfo -d {a.device}")))
    stat = dict(re.findall(r"(?m)^\s*([^:\n]+): (.*)$", a.run(f"ibstat {a.device}")))
    names = a.run("ibstat -l").split()
    place.check(a.device in names, f"ibstat -l says {names}")
    for key, value in (("Firmware version", said["fw_ver"]), ("Node GUID", "0x" + said["node_guid"].replace(":", "")), ("System image GUID", "0x" + said["sys_image_guid"].replace(":", "")),
                       ("State", {"PORT_ACTIVE": "Active", "PORT_DOWN": "Down"}[said["state"]]), ("Link layer", said["link_layer"])):
        place.check(stat.get(key) == value, f"ibstat: {key} is {stat.get(key)}, verbs say {value}")
    status = a.run("ibstatus")
    for name in names:
        place.check(f"Infiniband device '{name}' port 1 status:" in status, f"ibstatus has no {name}:\n{status}")
    place.check("4: ACTIVE" in status, f"ibstatus:\n{status}")
    mad = a.start("ibaddr")
    place.check(mad.wait(20) != 0 and "Failed to open" in mad.text(), f"ibaddr: has it begun to work?\n{mad.tail()}")
    place.compared(f"ibstat and ibstatus of {len(names)} devices, beside ibv_devinfo; ibaddr finds no port for MADs")


place.main(body)
