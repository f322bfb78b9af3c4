"""`timebound reproduce mrt-mqtt-bounds`: the analyses of the MRT-MQTT paper (Figs. 16 to 18) as printed, beside safe ones and simulation."""
