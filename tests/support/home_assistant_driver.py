"""A headless Home Assistant, run by a Python that has it: answers each line on stdin with its states as one JSON line.

Its own frontend is not installed, and nobody needs it here. Usage: home_assistant_driver.py CONFIG_DIR
"""

import asyncio
import hashlib
import json
import sys

from homeassistant import bootstrap, runner
from homeassistant.helpers import device_registry, entity_registry

bootstrap.CRITICAL_INTEGRATIONS = set()


async def picture_of(hass, entity_id):
    """Return the SHA-256 of what a camera shows; None: nothing yet."""
    from homeassistant.components.camera import async_get_image
    from homeassistant.exceptions import HomeAssistantError

    try:
        return hashlib.sha256((await async_get_image(hass, entity_id)).content).hexdigest()
    except HomeAssistantError:
        return None


async def states(hass):
    entities, devices = entity_registry.async_get(hass), device_registry.async_get(hass)
    found = []
    for state in hass.states.async_all():
        entry = entities.async_get(state.entity_id)
        device = devices.async_get(entry.device_id) if entry is not None and entry.device_id else None
        found.append(
            {
                "id": state.entity_id,
                "unique_id": None if entry is None else entry.unique_id,
                "state": state.state,
                "attributes": json.loads(json.dumps(dict(state.attributes), default=str)),
                "device": None if device is None else device.name,
                "picture": await picture_of(hass, state.entity_id) if state.domain == "camera" else None,
            }
        )
    return found


async def main():
    folder = sys.argv[1]
    config = runner.RuntimeConfig(config_dir=folder, skip_pip=True, log_no_color=True, log_file=f"{folder}/ha.log")
    hass = await bootstrap.async_setup_hass(config)
    await hass.async_start()
    print("READY", flush=True)
    loop = asyncio.get_running_loop()
    while await loop.run_in_executor(None, sys.stdin.readline):
        print(json.dumps(await states(hass)), flush=True)
    await hass.async_stop(force=True)


asyncio.run(main())
